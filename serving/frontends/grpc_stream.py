"""ModelStreamInfer: many requests, many answers, one stream. Loop thread.

Answers of models that are not decoupled come back in request order; those of decoupled models as
they are produced. A failed request is a message, not the end of the stream, unless the caller's
metadata says `triton_grpc_error: true`. Source: spec protocol_grpc.md D.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving.errors import InternalError, InvalidArgumentError, ServingError
from serving.frontends.grpc_call import check_size
from serving.frontends.grpc_stream_call import StreamCall
from serving.frontends.grpc_tracing import sampled
from serving.frontends.http2.stream import Part
from serving.protocol import v2_grpc
from serving.protocol.parameters import forward_headers
from serving.protocol.status import GrpcStatus, grpc_status
from serving.protocol.v2_grpc_encode import (
    encode_response,
    encode_stream_error,
    encode_stream_response,
)
from serving.protocol.v2_grpc_split import SplitRequest, split_request
from serving.request import InferenceRequest, request_tag
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.model import Model
    from serving.server import ModelServer
    from serving.tracing.trace import Trace
    from serving.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT = 256
"""Requests of one stream without their last answer; beyond that no further request is read, so that
one client with a fast pen does not fill the queues of everyone."""
_MAX_UNSENT = 1024**2
"""Bytes of answers waiting for the client; beyond that no further request is read."""
_MAX_BACKLOG = 256 * 1024**2
"""Bytes that wait while a decoupled model goes on and on; beyond that the client has lost."""


@dataclass(slots=True, eq=False)
class _Call:
    """One request of the stream and the answers that wait for their turn."""

    id: str
    model_name: str
    is_ordered: bool = True
    request: InferenceRequest | None = None
    messages: list[list[Part]] = field(default_factory=list)
    is_done: bool = False
    trace: Trace | None = None


class InferStream:
    """The `StreamHandler` of one call."""

    def __init__(
        self,
        server: ModelServer,
        call: StreamCall,
        memory: ClientMemory,
        tracer: Tracer,
        forward: re.Pattern[str] | None = None,
    ) -> None:
        """`forward`: names of metadata that become parameters of every request."""
        self._server = server
        self._tracer = tracer
        self._memory = memory
        self._call = call
        self._calls: deque[_Call] = deque()
        self._is_read = False
        self._is_over = False
        self._is_advancing = False
        self._has_news = False
        self._forward = forward
        self._stops_at_error = call.head.value("triton_grpc_error").lower() == "true"

    # --- StreamHandler ---------------------------------------------------------------------

    def on_message(self, data: Part) -> None:
        try:
            split = split_request(data)
        except InvalidArgumentError as error:
            self._fail(error)  # what follows on the stream cannot be trusted
            return
        self._submit(split)
        self._adjust_reading()

    def on_end(self) -> None:
        self._is_read = True
        self._advance()

    def on_drained(self) -> None:
        self._adjust_reading()

    def on_gone(self) -> None:
        self._is_over = True
        for call in list(self._calls):  # a cancelled one is answered, and leaves, at once
            if call.request is not None and not call.is_done:
                call.request.cancel()

    def _adjust_reading(self) -> None:
        is_full = len(self._calls) >= _MAX_IN_FLIGHT or self._call.unsent_bytes >= _MAX_UNSENT
        if self._is_over:
            return
        if is_full:
            self._call.pause()
        else:
            self._call.resume()

    def _fail(self, error: ServingError) -> None:
        self._call.give_up(grpc_status(error.code), error.message)

    # --- requests --------------------------------------------------------------------------

    def _submit(self, split: SplitRequest) -> None:
        start_ns = time.monotonic_ns()
        head = split.head
        call = _Call(split.id, head.model_name)
        self._calls.append(call)
        try:
            version = v2_grpc.parse_version(head.model_version, head.model_name)
            model = self._server.receiver(head.model_name, version)
            call.is_ordered = not model.spec.is_decoupled
            request = v2_grpc.decode_request(split, model.spec, version, self._memory)
            if self._forward is not None:
                forward_headers(request, self._forward, self._call.head.metadata)
        except ServingError as error:
            self._finish(call, self._error_message(call, error), error)
            return
        except Exception:
            logger.exception(
                "%s a stream request failed unexpectedly model=%s",
                request_tag(call.id),
                call.model_name,
            )
            problem = InternalError("internal error, see the server's log")
            self._finish(call, self._error_message(call, problem), problem)
            return
        call.request = request
        request.on_response = lambda response: self._on_response(call, model, response)
        if self._tracer.is_on:
            request.trace = call.trace = sampled(self._tracer, model.name, self._call.head)
            if call.trace is not None:
                call.trace.stamp("GRPC_WAITREAD_START", start_ns)
                call.trace.stamp("GRPC_WAITREAD_END")
        self._server.infer(request)

    # --- answers ---------------------------------------------------------------------------

    def _on_response(self, call: _Call, model: Model, response: InferenceResponse) -> None:
        request = call.request
        if request is None:
            return
        if self._is_over:
            if response.is_final:
                self._finish(call, None, None)
            return
        error = response.error
        message: list[Part] | None = None
        if error is None and not response.is_null:
            try:
                message = self._answer(request, response, model)
            except ServingError as problem:
                error = problem
            except Exception:
                logger.exception(
                    "%s cannot encode a response model=%s", request_tag(call.id), call.model_name
                )
                error = InternalError("internal error while encoding the response")
        elif response.is_null and request.parameters.get("triton_enable_empty_final_response"):
            message = self._answer(request, response, model)
        if error is not None:
            message = self._error_message(call, error)
        if response.is_final:
            self._finish(call, message, error)
        elif message is not None:
            call.messages.append(message)
            self._advance()

    def _answer(
        self, request: InferenceRequest, response: InferenceResponse, model: Model
    ) -> list[Part]:
        inner = encode_response(request, response, model.spec, model.labels_of)
        parts = encode_stream_response(inner, is_final=response.is_final)
        check_size(parts)
        return parts

    def _error_message(self, call: _Call, error: ServingError) -> list[Part]:
        return encode_stream_error(call.id, call.model_name, error.message)

    def _finish(self, call: _Call, message: list[Part] | None, error: ServingError | None) -> None:
        if message is not None:
            call.messages.append(message)
        call.is_done = True
        if call.request is not None:
            call.request.on_response = None
            call.request = None
        if call.trace is not None:
            call.trace.stamp("GRPC_SEND_START")
            call.trace.stamp("GRPC_SEND_END")
            call.trace.end()
        if error is not None and self._stops_at_error and not self._is_over:
            self._fail(error)
        self._advance()
        self._adjust_reading()

    def _advance(self) -> None:
        """Send what may be sent now. To send may make room for further requests, whose answers may
        come at once: those wait for their turn here.
        """
        self._has_news = True
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._has_news:
                self._has_news = False
                self._send_ready()
        finally:
            self._is_advancing = False

    def _send_ready(self) -> None:
        """Ordered calls in turn, decoupled ones at once."""
        if self._is_over:
            self._calls = deque(call for call in self._calls if not call.is_done)
            return
        is_first_ordered = True
        for call in list(self._calls):
            if call.is_ordered and not is_first_ordered:
                continue
            messages, call.messages = call.messages, []
            if not all(self._send(call, message) for message in messages):
                return  # the client has lost its stream, and every call was seen to
            if call.is_done:
                self._calls.remove(call)
            elif call.is_ordered:
                is_first_ordered = False
        if self._is_read and not self._calls and not self._is_over:
            self._is_over = True
            self._call.finish()

    def _send(self, call: _Call, message: list[Part]) -> bool:
        """False where the stream is over, before or because of it."""
        if not call.is_ordered and self._call.unsent_bytes > _MAX_BACKLOG:
            logger.warning("ending a stream whose client does not read model=%s", call.model_name)
            self._call.cut_short(
                GrpcStatus.RESOURCE_EXHAUSTED, "the client reads its stream too slowly"
            )
        if not self._is_over:
            self._call.send(message)
        return not self._is_over
