"""Handlers of inference.GRPCInferenceService, message to message. Loop thread.

A ServingError leaves a handler as the status of `serving.protocol.status` with its message.
Source: spec protocol_grpc.md B.
"""

# ruff: noqa: N802 - the methods are named in the .proto

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from serving.client_memory import ClientMemory, CudaRegion, SystemRegion
from serving.errors import InvalidArgumentError, ServingError, UnsupportedError
from serving.frontends import extensions
from serving.frontends.grpc_parsing import refuse_malformed
from serving.frontends.grpc_stream import InferStream
from serving.frontends.grpc_tracing import sampled
from serving.protocol import v2_grpc
from serving.protocol.parameters import forward_headers
from serving.protocol.status import grpc_details, grpc_status
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

Handler = Callable[["GrpcService", Any, Any], Awaitable[Any]]


def _answers_errors(handler: Handler) -> Handler:
    @functools.wraps(handler)
    async def answer(self: GrpcService, request: Any, context: Any) -> Any:
        try:
            refuse_malformed(request)
            return await handler(self, request, context)
        except ServingError as error:
            await context.abort(grpc_status(error.code), grpc_details(error.message))
        except grpc.aio.AbortError:
            raise
        except Exception:
            logger.exception("a gRPC handler failed unexpectedly method=%s", handler.__name__)
            await context.abort(grpc.StatusCode.INTERNAL, "internal error, see the server's log")

    return answer


class GrpcService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(
        self, server: ModelServer, memory: ClientMemory, tracer: Tracer, forward: str = ""
    ) -> None:
        """`forward`: pattern of the metadata that becomes request parameters."""
        self._server = server
        self._forward = re.compile(forward) if forward else None
        self._tracer = tracer
        self._memory = memory
        self._operations: set[asyncio.Task[None]] = set()

    # --- health and metadata ---------------------------------------------------------------

    @_answers_errors
    async def ServerLive(self, request: Any, context: Any) -> Any:
        return pb.ServerLiveResponse(live=self._server.is_live)

    @_answers_errors
    async def ServerReady(self, request: Any, context: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._server.is_ready())

    @_answers_errors
    async def ModelReady(self, request: Any, context: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        is_ready = self._server.is_model_ready(request.name, version)
        check = self._server.ready_check(request.name, version) if is_ready else None
        if check is not None:
            is_ready = await asyncio.shield(check)
        return pb.ModelReadyResponse(ready=is_ready)

    @_answers_errors
    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return pb.ServerMetadataResponse(**self._server.server_metadata())

    @_answers_errors
    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        return pb.ModelMetadataResponse(**self._server.model_metadata(request.name, version))

    @_answers_errors
    async def ModelConfig(self, request: Any, context: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        return pb.ModelConfigResponse(config=self._server.model_config(request.name, version))

    @_answers_errors
    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        rows = self._server.model_statistics(request.name, version)
        return json_format.ParseDict(
            {"model_stats": rows}, pb.ModelStatisticsResponse(), ignore_unknown_fields=True
        )

    # --- inference -------------------------------------------------------------------------

    @_answers_errors
    async def ModelInfer(self, request: Any, context: Any) -> Any:
        start_ns = time.monotonic_ns()
        version = v2_grpc.parse_version(request.model_version, request.model_name)
        model = self._server.receiver(request.model_name, version)
        if model.spec.is_decoupled:
            raise UnsupportedError(
                f"model '{request.model_name}' is decoupled: it may send any number of responses, "
                "which ModelInfer cannot carry; use ModelStreamInfer"
            )
        call = v2_grpc.decode_request(request, model.spec, version, self._memory)
        if self._forward is not None:
            forward_headers(call, self._forward, context.invocation_metadata() or ())
        answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()

        def on_response(response: InferenceResponse) -> None:
            if response.is_final and not answer.done():
                answer.set_result(response)

        call.on_response = on_response
        trace = sampled(self._tracer, model.name, context) if self._tracer.is_on else None
        if trace is not None:
            call.trace = trace
            trace.stamp("GRPC_WAITREAD_START", start_ns)
            trace.stamp("GRPC_WAITREAD_END")
        self._server.infer(call)
        try:
            response = await answer
            if response.error is not None:
                if trace is not None:
                    trace.error = response.error.message
                raise response.error
            if trace is not None:
                trace.stamp("GRPC_SEND_START")
            return v2_grpc.encode_response(call, response, model.spec, model.labels_of)
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            if trace is not None:
                trace.stamp("GRPC_SEND_END")
                trace.end()

    async def ModelStreamInfer(
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        stream = InferStream(self._server, requests, context, self._memory, self._tracer)
        stream.forward = self._forward
        async with aclosing(stream.responses()) as messages:
            async for message in messages:
                yield message

    # --- model repository ------------------------------------------------------------------

    @_answers_errors
    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        _refuse_repository_name(request)
        message = pb.RepositoryIndexResponse()
        for entry in self._server.repository_index(ready_only=request.ready):
            version = "" if entry.version is None else str(entry.version)
            message.models.add(
                name=entry.name, version=version, state=entry.state, reason=entry.reason
            )
        return message

    @_answers_errors
    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        _refuse_repository_name(request)
        config: str | None = None
        files: dict[str, bytes] = {}
        for name, value in request.parameters.items():
            choice = value.WhichOneof("parameter_choice")
            if name == "config" and choice == "string_param":
                config = value.string_param
            elif name.startswith("file:") and choice == "bytes_param":
                files[name.removeprefix("file:")] = value.bytes_param
            else:
                raise InvalidArgumentError(
                    f"unrecognized load parameter '{name}' of type {choice}; known are 'config' "
                    "(string_param) and 'file:<path>' (bytes_param)"
                )
        await self._to_the_end(
            self._server.load_model(request.model_name, config_override=config, files=files or None)
        )
        return pb.RepositoryModelLoadResponse()

    @_answers_errors
    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        _refuse_repository_name(request)
        unload_dependents = False
        for name, value in request.parameters.items():
            if name != "unload_dependents":
                continue
            if value.WhichOneof("parameter_choice") != "bool_param":
                raise InvalidArgumentError("unload parameter 'unload_dependents' must be a bool")
            unload_dependents = value.bool_param
        await self._to_the_end(
            self._server.unload_model(request.model_name, unload_dependents=unload_dependents)
        )
        return pb.RepositoryModelUnloadResponse()

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """A client that goes away does not stop it: no model is left half loaded."""
        task = asyncio.ensure_future(work)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        await asyncio.shield(task)

    # --- extensions ------------------------------------------------------------------------

    @_answers_errors
    async def LogSettings(self, request: Any, context: Any) -> Any:
        wanted: dict[str, object] = {}
        for name, value in request.settings.items():
            choice = value.WhichOneof("parameter_choice")
            wanted[name] = None if choice is None else getattr(value, choice)
        settings = extensions.change_log_settings(wanted)
        message = pb.LogSettingsResponse()
        for name, setting in settings.items():
            target = message.settings[name]
            if isinstance(setting, bool):
                target.bool_param = setting
            elif isinstance(setting, int):
                target.uint32_param = setting
            else:
                target.string_param = setting
        return message

    @_answers_errors
    async def SystemSharedMemoryStatus(self, request: Any, context: Any) -> Any:
        message = pb.SystemSharedMemoryStatusResponse()
        for region in self._memory.regions(SystemRegion, request.name):
            target = message.regions[region.name]
            target.name, target.key = region.name, region.key
            target.offset, target.byte_size = region.offset, region.byte_size
        return message

    @_answers_errors
    async def SystemSharedMemoryRegister(self, request: Any, context: Any) -> Any:
        self._memory.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    @_answers_errors
    async def SystemSharedMemoryUnregister(self, request: Any, context: Any) -> Any:
        self._memory.unregister(SystemRegion, request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    @_answers_errors
    async def CudaSharedMemoryStatus(self, request: Any, context: Any) -> Any:
        message = pb.CudaSharedMemoryStatusResponse()
        for region in self._memory.regions(CudaRegion, request.name):
            target = message.regions[region.name]
            target.name, target.device_id = region.name, region.device_id
            target.byte_size = region.byte_size
        return message

    @_answers_errors
    async def CudaSharedMemoryRegister(self, request: Any, context: Any) -> Any:
        name, device = request.name, request.device_id
        await self._memory.register_cuda(name, request.raw_handle, device, request.byte_size)
        return pb.CudaSharedMemoryRegisterResponse()

    @_answers_errors
    async def CudaSharedMemoryUnregister(self, request: Any, context: Any) -> Any:
        self._memory.unregister(CudaRegion, request.name)
        return pb.CudaSharedMemoryUnregisterResponse()

    @_answers_errors
    async def TraceSetting(self, request: Any, context: Any) -> Any:
        extensions.check_traced_model(self._server, request.model_name)
        if request.settings:
            wanted = {name: _trace_value(name, item) for name, item in request.settings.items()}
            settings = self._tracer.change(wanted, request.model_name)
        else:
            settings = self._tracer.settings(request.model_name)
        message = pb.TraceSettingResponse()
        for name, value in settings.as_json().items():
            message.settings[name].value.extend([value] if isinstance(value, str) else value)
        return message


def _trace_value(name: str, item: Any) -> object:
    """An empty list clears the setting; only levels may be several."""
    values = list(item.value)
    if not values or name == "trace_level":
        return values or None
    if len(values) > 1:
        raise InvalidArgumentError(f"trace setting '{name}' takes one value, got {len(values)}")
    return values[0]


def _refuse_repository_name(request: Any) -> None:
    if request.repository_name:
        raise UnsupportedError("'repository_name' specification is not supported")
