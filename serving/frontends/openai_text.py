"""Answers of completions and chats: one JSON object, or server-sent events that end with [DONE].

Takes the responses of one generate request as they come. Loop thread. Source: spec TOOL-060.
"""

from __future__ import annotations

import codecs
import logging
from abc import ABC, abstractmethod
from typing import Any

import orjson

from serving.errors import InternalError, ServingError
from serving.frontends.http_messages import (
    HttpResponse,
    Reply,
    ResponseStream,
    json_response,
)
from serving.frontends.openai_models import openai_error
from serving.protocol.openai.answers import TextForm, Usage, error_of, piece_of
from serving.protocol.openai.stop import StopScanner
from serving.protocol.openai.text import TextCall
from serving.request import InferenceRequest
from serving.response import InferenceResponse

logger = logging.getLogger(__name__)

EVENT_STREAM = b"text/event-stream; charset=utf-8"


class TextAnswer(ABC):
    """What a model says to one request, until it ends or a stop sequence comes."""

    def __init__(self, call: TextCall, request: InferenceRequest, reply: Reply) -> None:
        self._call = call
        self._request = request
        self._reply = reply
        self._form = TextForm(call)
        self._usage = Usage()
        self._scanner = StopScanner(call.stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._finish_reason = ""
        self._is_over = False

    def on_response(self, response: InferenceResponse) -> None:
        if self._is_over:
            return
        try:
            self._hear(response)
        except Exception:
            logger.exception("cannot read a response model=%s", response.model_name)
            self._end()
            self._fail(InternalError("internal error while reading a response of the model"))
            self._request.cancel()

    def _hear(self, response: InferenceResponse) -> None:
        if response.error is not None:
            self._end()
            self._fail(response.error)
            return
        text = ""
        if not response.is_null:
            piece = piece_of(response)
            self._usage.add(piece)
            self._finish_reason = piece.finish_reason or self._finish_reason
            text = self._scanner.feed(self._decoder.decode(piece.text))
        is_over = response.is_final or self._scanner.is_stopped
        if is_over and not self._scanner.is_stopped:
            text += self._scanner.feed(self._decoder.decode(b"", final=True))
            text += self._scanner.rest()
        if text:
            self._take(text)
        if is_over:
            self._end()
            self._finish(self._reason())
            if not response.is_final:
                self._request.cancel()  # nobody hears what comes after a stop sequence

    def _end(self) -> None:
        self._is_over = True
        # Request and answer point at each other: let go, or bodies wait for the cycle collector.
        self._request.on_response = _ignore

    def _reason(self) -> str:
        if self._scanner.is_stopped:
            return "stop"
        if self._finish_reason in ("stop", "length"):
            return self._finish_reason
        counted = self._usage.tokens_out
        return "length" if counted is not None and counted >= self._call.max_tokens else "stop"

    @abstractmethod
    def _take(self, text: str) -> None: ...

    @abstractmethod
    def _finish(self, reason: str) -> None: ...

    @abstractmethod
    def _fail(self, error: ServingError) -> None: ...


def _ignore(response: InferenceResponse) -> None:
    """Of a request that nobody waits for any more."""


class WholeAnswer(TextAnswer):
    """Collects the text of all responses."""

    def __init__(self, call: TextCall, request: InferenceRequest, reply: Reply) -> None:
        super().__init__(call, request, reply)
        self._texts: list[str] = []

    def _take(self, text: str) -> None:
        self._texts.append(text)

    def _finish(self, reason: str) -> None:
        self._reply(json_response(self._form.whole("".join(self._texts), reason, self._usage)))

    def _fail(self, error: ServingError) -> None:
        self._reply(openai_error(error))


class StreamedAnswer(TextAnswer):
    """One event for each response. The first response decides the status; errors after it are
    events.
    """

    def __init__(self, call: TextCall, request: InferenceRequest, reply: Reply) -> None:
        super().__init__(call, request, reply)
        self._stream: ResponseStream | None = None

    def _take(self, text: str) -> None:
        self._write(self._form.chunk(text))

    def _finish(self, reason: str) -> None:
        self._write(self._form.last_chunk(reason))
        if self._call.with_usage:
            self._write(self._form.usage_chunk(self._usage))
        stream = self._opened()
        stream.write(b"data: [DONE]\n\n")
        stream.end()

    def _fail(self, error: ServingError) -> None:
        if self._stream is None:
            self._reply(openai_error(error))
        else:
            self._write(error_of(error)[1])
            self._stream.end()

    def _opened(self) -> ResponseStream:
        if self._stream is None:
            self._stream = self._reply.start_stream(HttpResponse(200, [], EVENT_STREAM))
            first = self._form.first_chunk()
            if first is not None:
                self._write(first)
        return self._stream

    def _write(self, event: dict[str, Any]) -> None:
        self._opened().write(b"data: " + orjson.dumps(event) + b"\n\n")
