"""ModelInfer: from the bytes of a request to those of its answer, without a Task. Loop thread.

Source: spec GRPC-007, GRPC-026, GRPC-027, GRPC-036.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from serving.errors import UnsupportedError
from serving.frontends.grpc_call import UnaryCall
from serving.frontends.grpc_tracing import sampled
from serving.frontends.http2.stream import Part
from serving.protocol import v2_grpc
from serving.protocol.parameters import forward_headers
from serving.protocol.v2_grpc_encode import encode_response
from serving.protocol.v2_grpc_split import split_request
from serving.request import InferenceRequest
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.model import Model
    from serving.server import ModelServer
    from serving.tracing.trace import Trace
    from serving.tracing.tracer import Tracer


class ModelInfer:
    """The `Handle` of the method."""

    def __init__(
        self,
        server: ModelServer,
        memory: ClientMemory,
        tracer: Tracer,
        forward: re.Pattern[str] | None,
    ) -> None:
        """`forward`: names of metadata that becomes request parameters."""
        self._server = server
        self._memory = memory
        self._tracer = tracer
        self._forward = forward

    def __call__(self, data: Part, call: UnaryCall) -> None:
        start_ns = time.monotonic_ns()
        split = split_request(data)
        name = split.head.model_name
        version = v2_grpc.parse_version(split.head.model_version, name)
        model = self._server.receiver(name, version)
        if model.spec.is_decoupled:
            raise UnsupportedError(
                f"model '{name}' is decoupled: it may send any number of responses, which "
                "ModelInfer cannot carry; use ModelStreamInfer"
            )
        request = v2_grpc.decode_request(split, model.spec, version, self._memory)
        if self._forward is not None:
            forward_headers(request, self._forward, call.head.metadata)
        trace = sampled(self._tracer, model.name, call.head) if self._tracer.is_on else None
        if trace is not None:
            request.trace = trace
            trace.stamp("GRPC_WAITREAD_START", start_ns)
            trace.stamp("GRPC_WAITREAD_END")
        request.on_response = _Answer(call, request, model, trace).on_response
        call.on_cancel = request.cancel
        self._server.infer(request)


class _Answer:
    """Turns the final response of one request into the reply of its call."""

    __slots__ = ("_call", "_model", "_request", "_trace")

    def __init__(
        self, call: UnaryCall, request: InferenceRequest, model: Model, trace: Trace | None
    ) -> None:
        self._call = call
        self._request = request
        self._model = model
        self._trace = trace

    def on_response(self, response: InferenceResponse) -> None:
        if not response.is_final:
            return  # the model is not decoupled; the core refuses a second response
        # Request and answer point at each other: let go, or tensors wait for the cycle collector.
        self._request.on_response = None
        if self._trace is None:
            self._reply(response)
        else:
            self._reply_traced(response, self._trace)

    def _reply_traced(self, response: InferenceResponse, trace: Trace) -> None:
        if response.error is None:
            trace.stamp("GRPC_SEND_START")
        else:
            trace.error = response.error.message
        self._reply(response)
        trace.stamp("GRPC_SEND_END")
        trace.end()

    def _reply(self, response: InferenceResponse) -> None:
        call, model = self._call, self._model
        if response.error is not None:
            call.fail_with(response.error)
        elif call.is_open:
            try:
                parts = encode_response(self._request, response, model.spec, model.labels_of)
            except Exception as error:
                call.fail_with(error)
            else:
                call.reply(parts)
