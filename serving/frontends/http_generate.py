"""POST .../generate and .../generate_stream: one JSON object back, or one server-sent event each.

Loop thread. Source: spec HTTP-050 to HTTP-056.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import orjson

from serving.errors import InternalError, InvalidArgumentError, ServingError
from serving.frontends.http_load import with_load
from serving.frontends.http_messages import (
    JSON,
    Cancel,
    HttpRequest,
    HttpResponse,
    Reply,
    ResponseStream,
    check_plain_json,
    error_response,
)
from serving.frontends.http_tracing import traced
from serving.options import FrontendOptions
from serving.protocol import generate
from serving.request import request_tag
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

_EVENT_STREAM = b"text/event-stream; charset=utf-8"


class GenerateRoutes:
    def __init__(self, server: ModelServer, options: FrontendOptions, tracer: Tracer) -> None:
        self._server = server
        self._tracer = tracer
        self._max_input_size = options.http_max_input_size

    def once(self, http: HttpRequest, reply: Reply, name: str, version: int) -> Cancel:
        return self._submit(http, name, version, _Single, reply)

    def stream(self, http: HttpRequest, reply: Reply, name: str, version: int) -> Cancel:
        return self._submit(http, name, version, _Events, reply)

    def _submit(
        self,
        http: HttpRequest,
        name: str,
        version: int,
        kind: type[_Answer],
        reply: Reply,
    ) -> Cancel:
        model = self._server.receiver(name, version)
        check_plain_json(http, "generate", self._max_input_size)
        request = generate.decode_request(http.body, model.spec, version)
        reply = with_load(http, reply, name, self._server)
        if self._tracer.is_on:
            reply = traced(self._tracer, name, http, request, reply)
        request.on_response = kind(reply).on_response
        self._server.infer(request)
        return request.cancel


class _Answer(ABC):
    """Takes the responses of one request."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def on_response(self, response: InferenceResponse) -> None:
        error, body = response.error, b""
        if error is None and not response.is_null:
            try:
                body = generate.encode_response(response)
            except ServingError as problem:
                error = problem
            except Exception:
                logger.exception(
                    "%s cannot encode a response model=%s",
                    request_tag(response.id),
                    response.model_name,
                )
                error = InternalError("internal error while encoding the response")
        self._take(body, error, response.is_final)

    @abstractmethod
    def _take(self, body: bytes, error: ServingError | None, is_final: bool) -> None:
        """`body` is empty where the response had no content."""


class _Single(_Answer):
    """Waits for the end, so that exactly one response can be told from several."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self._bodies: list[bytes] = []
        self._error: ServingError | None = None

    def _take(self, body: bytes, error: ServingError | None, is_final: bool) -> None:
        self._error = self._error or error
        if body and len(self._bodies) < 2:
            self._bodies.append(body)
        if not is_final:
            return
        if self._error is not None:
            self._reply(error_response(self._error))
        elif len(self._bodies) == 1:
            self._reply(HttpResponse(200, list(self._bodies), JSON))
        else:
            got = "none" if not self._bodies else "several"
            self._reply(
                error_response(
                    InvalidArgumentError(
                        f"generate expects model to produce exactly 1 response, got {got}; use "
                        "generate_stream"
                    )
                )
            )


class _Events(_Answer):
    """The first response decides the status; errors after it are events."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self._stream: ResponseStream | None = None
        self._is_answered = False

    def _take(self, body: bytes, error: ServingError | None, is_final: bool) -> None:
        if self._is_answered:
            return
        if error is not None and self._stream is None:
            self._is_answered = True
            self._reply(error_response(error))
            return
        if error is not None:
            body = orjson.dumps({"error": error.message})
        if self._stream is None and (body or is_final):
            self._stream = self._reply.start_stream(HttpResponse(200, [], _EVENT_STREAM))
        if self._stream is None:
            return
        if body:
            self._stream.write(b"data: " + body + b"\n\n")
        if is_final:
            self._is_answered = True
            self._stream.end()
