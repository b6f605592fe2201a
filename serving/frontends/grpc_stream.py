"""ModelStreamInfer: many requests, many answers, one stream. Loop thread.

Answers of models that are not decoupled come back in request order; those of decoupled models as
they are produced. A failed request is a message, not the end of the stream, unless the caller's
metadata says `triton_grpc_error: true`. Source: spec protocol_grpc.md D.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonclient.grpc import service_pb2 as pb

from serving.errors import InternalError, InvalidArgumentError, ServingError
from serving.frontends.grpc_parsing import refuse_malformed
from serving.frontends.grpc_tracing import sampled
from serving.protocol import v2_grpc
from serving.protocol.parameters import forward_headers
from serving.protocol.status import grpc_details, grpc_status
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
_MAX_UNSENT = 256
"""Answers waiting for the client; beyond that no further request is read."""


@dataclass(slots=True, eq=False)
class _Call:
    """One request of the stream and the answers that wait for their turn."""

    id: str
    model_name: str
    is_ordered: bool = True
    request: InferenceRequest | None = None
    messages: list[Any] = field(default_factory=list)
    is_done: bool = False
    trace: Trace | None = None


class InferStream:
    def __init__(
        self,
        server: ModelServer,
        requests: AsyncIterator[Any],
        context: Any,
        memory: ClientMemory,
        tracer: Tracer,
    ) -> None:
        self._server = server
        self._tracer = tracer
        self._memory = memory
        self._requests = requests
        self._context = context
        self._calls: deque[_Call] = deque()
        self._ready: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        self._is_read = False
        self._error: ServingError | None = None
        self.forward: re.Pattern[str] | None = None
        """Metadata whose names match become parameters of every request."""
        metadata = dict(context.invocation_metadata() or ())
        self._stops_at_error = metadata.get("triton_grpc_error", "").lower() == "true"

    async def responses(self) -> AsyncGenerator[Any, None]:
        reader = asyncio.create_task(self._read())
        try:
            while True:
                while self._ready:
                    yield self._ready.popleft()
                    self._moved.set()
                if self._error is not None:
                    error = self._error
                    await self._context.abort(grpc_status(error.code), grpc_details(error.message))
                if self._is_read and not self._calls:
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            reader.cancel()
            for call in list(self._calls):  # a cancelled one is answered, and leaves, at once
                if call.request is not None and not call.is_done:
                    call.request.cancel()

    async def _read(self) -> None:
        try:
            async for message in self._requests:
                refuse_malformed(message)
                self._submit(message)
                while len(self._ready) >= _MAX_UNSENT or len(self._calls) >= _MAX_IN_FLIGHT:
                    self._moved.clear()
                    await self._moved.wait()
        except InvalidArgumentError as error:
            self._error = self._error or error  # what follows on the stream cannot be trusted
        finally:
            self._is_read = True
            self._changed.set()

    def _submit(self, message: Any) -> None:
        start_ns = time.monotonic_ns()
        call = _Call(message.id, message.model_name)
        self._calls.append(call)
        try:
            version = v2_grpc.parse_version(message.model_version, message.model_name)
            model = self._server.receiver(message.model_name, version)
            call.is_ordered = not model.spec.is_decoupled
            request = v2_grpc.decode_request(message, model.spec, version, self._memory)
            if self.forward is not None:
                forward_headers(request, self.forward, self._context.invocation_metadata() or ())
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
            request.trace = call.trace = sampled(self._tracer, model.name, self._context)
            if call.trace is not None:
                call.trace.stamp("GRPC_WAITREAD_START", start_ns)
                call.trace.stamp("GRPC_WAITREAD_END")
        self._server.infer(request)

    def _on_response(self, call: _Call, model: Model, response: InferenceResponse) -> None:
        request = call.request
        if request is None:
            return
        error = response.error
        message: Any = None
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

    def _answer(self, request: InferenceRequest, response: InferenceResponse, model: Model) -> Any:
        inner = v2_grpc.encode_response(request, response, model.spec, model.labels_of)
        v2_grpc.set_parameter(inner.parameters["triton_final_response"], response.is_final)
        return pb.ModelStreamInferResponse(infer_response=inner)

    def _error_message(self, call: _Call, error: ServingError) -> Any:
        inner = pb.ModelInferResponse(id=call.id, model_name=call.model_name)
        return pb.ModelStreamInferResponse(error_message=error.message, infer_response=inner)

    def _finish(self, call: _Call, message: Any, error: ServingError | None) -> None:
        if message is not None:
            call.messages.append(message)
        call.is_done = True
        call.request = None  # it points back here through on_response
        if call.trace is not None:
            call.trace.stamp("GRPC_SEND_START")
            call.trace.stamp("GRPC_SEND_END")
            call.trace.end()
        if error is not None and self._stops_at_error and self._error is None:
            self._error = error
        self._advance()

    def _advance(self) -> None:
        """Move what may be sent now: ordered calls in turn, decoupled ones at once."""
        is_first_ordered = True
        for call in list(self._calls):
            if call.is_ordered and not is_first_ordered:
                continue
            self._ready.extend(call.messages)
            call.messages.clear()
            if call.is_done:
                self._calls.remove(call)
                self._moved.set()
            elif call.is_ordered:
                is_first_ordered = False
        self._changed.set()
