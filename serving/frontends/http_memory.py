"""The routes of client shared memory: register, unregister, status.

Transport-neutral, loop thread. Source: spec HTTP-014..017, HTTP-100..104.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serving.errors import InvalidArgumentError, NotFoundError
from serving.frontends import extensions
from serving.frontends.http_messages import (
    Handler,
    HttpRequest,
    HttpResponse,
    Reply,
    json_members,
    json_response,
)

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory


class MemoryRoutes:
    """In these handlers the model name is the region's, "" for all."""

    def __init__(self, memory: ClientMemory) -> None:
        self._memory = memory

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
            for region in self._memory.regions(name)
        ]
        reply(json_response(rows))

    def _register(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        self._memory.check_allowed("system")
        if not name:
            raise NotFoundError(
                "a region must be named: /v2/systemsharedmemory/region/<name>/register"
            )
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
        self._memory.unregister(name)
        reply(HttpResponse(200))

    def _cuda_status(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        extensions.check_cuda_region(name)
        reply(json_response([]))

    def _cuda_register(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        extensions.refuse_cuda_region(self._memory)

    def _cuda_unregister(self, request: HttpRequest, reply: Reply, name: str, version: int) -> None:
        self._memory.check_allowed("cuda")
        reply(HttpResponse(200))


def _integer(members: dict[str, Any], name: str, region: str) -> int:
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(
            f"the registration of shared memory region '{region}' must give '{name}', an unsigned "
            f"integer; got {value!r}"
        )
    return value
