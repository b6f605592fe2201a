"""What a model's responses say, and OpenAI's JSON for it: whole answers, chunks, errors, usage.

Source: spec TOOL-060, TOOL-062, TOOL-065. Pure; any thread.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serving.errors import ErrorCode, ServingError
from serving.protocol.openai.members import MemberError
from serving.protocol.openai.text import COUNT_IN, COUNT_OUT, FINISH, TEXT, TextCall
from serving.protocol.status import http_status
from serving.response import InferenceResponse

OWNER = "conch"


@dataclass(frozen=True, slots=True)
class Piece:
    """One response of a model that completes text."""

    text: bytes
    finish_reason: str
    tokens_in: int | None
    tokens_out: int | None


def piece_of(response: InferenceResponse) -> Piece:
    tensors = {output.name: output.array for output in response.outputs}
    text = b"".join(map(_as_bytes, tensors[TEXT].ravel())) if TEXT in tensors else b""
    reasons = tensors[FINISH].ravel() if FINISH in tensors else ()
    reason = next((_as_bytes(item).decode("utf-8", "replace") for item in reasons), "")
    return Piece(text, reason, _count(tensors.get(COUNT_IN)), _count(tensors.get(COUNT_OUT)))


def _as_bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def _count(array: np.ndarray[Any, Any] | None) -> int | None:
    if array is None or array.size == 0 or array.dtype.kind not in "iu":
        return None
    return int(array.sum())


@dataclass(slots=True)
class Usage:
    """Tokens, where the model counts them: all of the prompt, and those of each response."""

    tokens_in: int | None = None
    tokens_out: int | None = None

    def add(self, piece: Piece) -> None:
        if piece.tokens_in is not None:
            self.tokens_in = max(self.tokens_in or 0, piece.tokens_in)
        if piece.tokens_out is not None:
            self.tokens_out = (self.tokens_out or 0) + piece.tokens_out

    def as_json(self) -> dict[str, int] | None:
        if self.tokens_in is None and self.tokens_out is None:
            return None
        tokens_in, tokens_out = self.tokens_in or 0, self.tokens_out or 0
        return {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }


@dataclass(slots=True)
class TextForm:
    """The JSON of one answer; its id and time are the same in every chunk."""

    call: TextCall
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = ("chatcmpl-" if self.call.is_chat else "cmpl-") + uuid.uuid4().hex

    def whole(self, text: str, finish_reason: str, usage: Usage) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
        if self.call.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        answer = self._answer("chat.completion", [choice])
        counted = usage.as_json()
        return answer if counted is None else {**answer, "usage": counted}

    def first_chunk(self) -> dict[str, Any] | None:
        """Who speaks; completions have no such chunk."""
        if not self.call.is_chat:
            return None
        return self._chunk({"role": "assistant", "content": ""}, None)

    def chunk(self, text: str) -> dict[str, Any]:
        return self._chunk({"content": text} if self.call.is_chat else text, None)

    def last_chunk(self, finish_reason: str) -> dict[str, Any]:
        return self._chunk({} if self.call.is_chat else "", finish_reason)

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return {**self._answer("chat.completion.chunk", []), "usage": usage.as_json()}

    def _chunk(self, said: dict[str, str] | str, finish_reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
        choice["delta" if self.call.is_chat else "text"] = said
        return self._answer("chat.completion.chunk", [choice])

    def _answer(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind if self.call.is_chat else "text_completion",
            "created": self.created,
            "model": self.call.model,
            "choices": choices,
        }


def model_row(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": OWNER}


def model_list(names: Iterable[str], created: int) -> dict[str, Any]:
    return {"object": "list", "data": [model_row(name, created) for name in names]}


def error_of(error: ServingError) -> tuple[int, dict[str, Any]]:
    """HTTP status and body."""
    status = http_status(error.code)
    code = "model_not_found" if error.code is ErrorCode.NOT_FOUND else None
    kind = "server_error" if status >= 500 else "invalid_request_error"
    param = error.param if isinstance(error, MemberError) else None
    return status, error_body(error.message, kind, code=code, param=param)


def error_body(
    message: str, kind: str, *, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
