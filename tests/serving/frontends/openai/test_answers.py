"""Answers of completions without a server: what goes wrong with a response is told, and once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import BackendError
from serving.frontends.http_messages import HttpResponse
from serving.frontends.openai_text import StreamedAnswer, TextAnswer, WholeAnswer
from serving.protocol.openai.text import TextCall
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor


class Reply:
    def __init__(self) -> None:
        self.answers: list[HttpResponse] = []
        self.events: list[bytes] = []
        self.is_ended = False

    def __call__(self, response: HttpResponse) -> None:
        self.answers.append(response)

    def start_stream(self, response: HttpResponse) -> Reply:
        self.answers.append(response)
        return self

    def write(self, data: bytes) -> None:
        self.events.append(data)

    def end(self) -> None:
        self.is_ended = True


def said(text: bytes, *, is_final: bool = False) -> InferenceResponse:
    array = np.array([text], np.object_)
    output = OutputTensor("text_output", BY_NAME["BYTES"], (1,), array)
    return InferenceResponse("m", 1, outputs=[output], is_final=is_final)


def answer_of(kind: type[TextAnswer], **call: Any) -> tuple[TextAnswer, InferenceRequest, Reply]:
    request, reply = InferenceRequest("m"), Reply()
    asked = TextCall("m", False, sampling={"max_tokens": 16}, **call)
    return kind(asked, request, reply), request, reply


@pytest.mark.parametrize("kind", [WholeAnswer, StreamedAnswer])
def test_a_response_that_cannot_be_read_is_an_internal_error(kind: type[TextAnswer]) -> None:
    answer, request, reply = answer_of(kind)
    broken = OutputTensor("text_output", BY_NAME["BYTES"], (1,), None)  # type: ignore[arg-type]

    answer.on_response(InferenceResponse("m", 1, outputs=[broken], is_final=False))
    answer.on_response(said(b"more", is_final=True))

    assert [item.status for item in reply.answers] == [500]
    assert request.is_cancelled


def test_characters_may_be_cut_in_two() -> None:
    answer, _, reply = answer_of(StreamedAnswer)
    for piece in (b"\xc3", b"\xa4", b"\xff", b"\xc3"):
        answer.on_response(said(piece))
    answer.on_response(InferenceResponse("m", 1, is_null=True))

    texts = [event for event in reply.events if b'"finish_reason":null' in event]
    assert ["ä" in event.decode() for event in texts] == [True, False, False]
    assert b"".join(texts).decode().count("\ufffd") == 2
    assert reply.events[-1] == b"data: [DONE]\n\n"
    assert reply.is_ended


def test_what_comes_after_a_stop_sequence_is_cancelled() -> None:
    answer, request, reply = answer_of(WholeAnswer, stop=("END",))
    answer.on_response(said(b"abEN"))
    answer.on_response(said(b"Dcd"))
    answer.on_response(said(b"ef"))
    error = BackendError("too late")
    answer.on_response(InferenceResponse("m", 1, error=error, is_final=True))

    assert request.is_cancelled
    assert [item.status for item in reply.answers] == [200]
    assert b'"text":"ab"' in bytes(reply.answers[0].parts[0])
