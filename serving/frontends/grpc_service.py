"""Handlers of inference.GRPCInferenceService, message to message. Loop thread.

A ServingError leaves a handler as the status of `serving.protocol.status` with its message. Those
that wait for something are coroutines; `methods` puts them all, and inference, into a table.
Source: spec protocol_grpc.md B.
"""

# ruff: noqa: N802 - the methods are named in the .proto

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, message_factory

from serving.client_memory import ClientMemory, CudaRegion, SystemRegion
from serving.errors import InvalidArgumentError, UnsupportedError
from serving.frontends import extensions
from serving.frontends.grpc_infer import ModelInfer
from serving.frontends.grpc_methods import Method, unary
from serving.frontends.grpc_stream import InferStream
from serving.protocol import v2_grpc
from serving.protocol.service_pb import pb

if TYPE_CHECKING:
    from serving.frontends.grpc_stream_call import StreamCall
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer


class GrpcService:
    """One method for each of the service but the two that infer."""

    def __init__(self, server: ModelServer, memory: ClientMemory, tracer: Tracer) -> None:
        self._server = server
        self._tracer = tracer
        self._memory = memory
        self._operations: set[asyncio.Task[None]] = set()

    # --- health and metadata ---------------------------------------------------------------

    def ServerLive(self, request: Any) -> Any:
        return pb.ServerLiveResponse(live=self._server.is_live)

    def ServerReady(self, request: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._server.is_ready())

    async def ModelReady(self, request: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        is_ready = self._server.is_model_ready(request.name, version)
        check = self._server.ready_check(request.name, version) if is_ready else None
        if check is not None:
            is_ready = await asyncio.shield(check)
        return pb.ModelReadyResponse(ready=is_ready)

    def ServerMetadata(self, request: Any) -> Any:
        return pb.ServerMetadataResponse(**self._server.server_metadata())

    def ModelMetadata(self, request: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        return pb.ModelMetadataResponse(**self._server.model_metadata(request.name, version))

    def ModelConfig(self, request: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        return pb.ModelConfigResponse(config=self._server.model_config(request.name, version))

    def ModelStatistics(self, request: Any) -> Any:
        version = v2_grpc.parse_version(request.version, request.name)
        rows = self._server.model_statistics(request.name, version)
        return json_format.ParseDict(
            {"model_stats": rows}, pb.ModelStatisticsResponse(), ignore_unknown_fields=True
        )

    # --- model repository ------------------------------------------------------------------

    def RepositoryIndex(self, request: Any) -> Any:
        _refuse_repository_name(request)
        message = pb.RepositoryIndexResponse()
        for entry in self._server.repository_index(ready_only=request.ready):
            version = "" if entry.version is None else str(entry.version)
            message.models.add(
                name=entry.name, version=version, state=entry.state, reason=entry.reason
            )
        return message

    async def RepositoryModelLoad(self, request: Any) -> Any:
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

    async def RepositoryModelUnload(self, request: Any) -> Any:
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

    def LogSettings(self, request: Any) -> Any:
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

    def SystemSharedMemoryStatus(self, request: Any) -> Any:
        message = pb.SystemSharedMemoryStatusResponse()
        for region in self._memory.regions(SystemRegion, request.name):
            target = message.regions[region.name]
            target.name, target.key = region.name, region.key
            target.offset, target.byte_size = region.offset, region.byte_size
        return message

    def SystemSharedMemoryRegister(self, request: Any) -> Any:
        self._memory.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Any) -> Any:
        self._memory.unregister(SystemRegion, request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    def CudaSharedMemoryStatus(self, request: Any) -> Any:
        message = pb.CudaSharedMemoryStatusResponse()
        for region in self._memory.regions(CudaRegion, request.name):
            target = message.regions[region.name]
            target.name, target.device_id = region.name, region.device_id
            target.byte_size = region.byte_size
        return message

    async def CudaSharedMemoryRegister(self, request: Any) -> Any:
        name, device = request.name, request.device_id
        await self._memory.register_cuda(name, request.raw_handle, device, request.byte_size)
        return pb.CudaSharedMemoryRegisterResponse()

    def CudaSharedMemoryUnregister(self, request: Any) -> Any:
        self._memory.unregister(CudaRegion, request.name)
        return pb.CudaSharedMemoryUnregisterResponse()

    def TraceSetting(self, request: Any) -> Any:
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


DESCRIPTOR = pb.DESCRIPTOR
_SERVICE = DESCRIPTOR.services_by_name["GRPCInferenceService"]


def methods(
    server: ModelServer, memory: ClientMemory, tracer: Tracer, forward: str
) -> dict[str, Method]:
    """By path. `forward`: pattern of the metadata that becomes request parameters; "" for none."""
    pattern = re.compile(forward) if forward else None
    service = GrpcService(server, memory, tracer)

    def open_stream(call: StreamCall) -> InferStream:
        return InferStream(server, call, memory, tracer, pattern)

    table = {
        "ModelInfer": Method("ModelInfer", ModelInfer(server, memory, tracer, pattern)),
        "ModelStreamInfer": Method("ModelStreamInfer", open_stream=open_stream),
    }
    for method in _SERVICE.methods:
        if method.name not in table:
            request = message_factory.GetMessageClass(method.input_type)
            table[method.name] = unary(method.name, request, getattr(service, method.name))
    return {f"/{_SERVICE.full_name}/{name}": method for name, method in table.items()}
