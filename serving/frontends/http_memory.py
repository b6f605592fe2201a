"""The routes of client shared memory: register, unregister, status.

Transport-neutral, loop thread. Source: spec HTTP-014..017, HTTP-100..104.
"""

from __future__ import annotations

from typing import Any

from serving.client_memory import ClientMemory, CudaRegion, SystemRegion
from serving.cuda_memory import decode_handle
from serving.errors import InvalidArgumentError, NotFoundError
from serving.frontends.http_messages import (
    Handler,
    HttpRequest,
    HttpResponse,
    Reply,
    json_members,
    json_response,
)
from serving.frontends.http_tasks import ReplyTasks


class MemoryRoutes:
    """In these handlers the model name is the region's, "" for all."""

    def __init__(self, memory: ClientMemory) -> None:
        self._memory = memory
        self._tasks = ReplyTasks()

    def methods(self, kind: str, verb: str) -> dict[bytes, Handler]:
        """Method -> handler of /v2/{kind}sharedmemory[/region/NAME]/{verb}."""
        handlers: dict[str, tuple[bytes, Handler]] = {
            "system status": (b"GET", self._status),
            "system register": (b"POST", self._register),
            "system unregister": (b"POST", self._unregister),
            "cuda status": (b"GET", self._cuda_status),
            "cuda register": (b"POST", self._cuda_register),
            "cuda unregister": (b"POST", self._cuda_unregister),
        }
        method, handler = handlers[f"{kind} {verb}"]
        return {method: handler}

    def _status(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        rows = [
            {
                "name": region.name,
                "key": region.key,
                "offset": region.offset,
                "byte_size": region.byte_size,
            }
            for region in self._memory.regions(SystemRegion, name)
        ]
        reply(json_response(rows))

    def _register(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        self._memory.check_allowed("system")
        _check_named(name, "system")
        members = json_members(request)
        key = members.get("key")
        if not isinstance(key, str):
            raise InvalidArgumentError(
                f"the registration of shared memory region '{name}' must give 'key', a string"
            )
        size = _integer(members, "byte_size", name)
        offset = _integer(members, "offset", name) if "offset" in members else 0
        self._memory.register(name, key, offset, size)
        reply(HttpResponse(200))

    def _unregister(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        self._memory.unregister(SystemRegion, name)
        reply(HttpResponse(200))

    def _cuda_status(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        rows = [
            {"name": region.name, "device_id": region.device_id, "byte_size": region.byte_size}
            for region in self._memory.regions(CudaRegion, name)
        ]
        reply(json_response(rows))

    def _cuda_register(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        self._memory.check_allowed("cuda")
        _check_named(name, "cuda")
        members = json_members(request)
        shared = members.get("raw_handle")
        handle = decode_handle(name, shared.get("b64") if isinstance(shared, dict) else None)
        device = _integer(members, "device_id", name)
        size = _integer(members, "byte_size", name)
        self._tasks.run(self._memory.register_cuda(name, handle, device, size), reply)

    def _cuda_unregister(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        self._memory.unregister(CudaRegion, name)
        reply(HttpResponse(200))


def _check_named(name: str, kind: str) -> None:
    if not name:
        raise NotFoundError(
            f"a region must be named: /v2/{kind}sharedmemory/region/<name>/register"
        )


def _integer(members: dict[str, Any], name: str, region: str) -> int:
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(
            f"the registration of shared memory region '{region}' must give '{name}', an unsigned "
            f"integer; got {value!r}"
        )
    return value
