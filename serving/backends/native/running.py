"""What the server does for a library: its log, responses, cancellation.

Called by threads of the library's. No exception may leave these functions: what goes wrong is an
error for the library, and where a request can be named, for its caller. Source: spec BE-004,
BE-007, BE-008.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from dataclasses import dataclass

from serving.backends.factory import ResponseFactory
from serving.backends.native import abi
from serving.backends.native.tensors import RequestMemory, outputs_of, parameters_of
from serving.config.decode import ModelSpec
from serving.errors import BackendError

logger = logging.getLogger(__name__)

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_MAX_LOG_CHARACTERS = 8192


@dataclass(slots=True)
class Running:
    """A request that has not had its final response."""

    memory: RequestMemory
    factory: ResponseFactory
    spec: ModelSpec


class Host:
    """One for each library in a process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: dict[int, Running] = {}
        """By the address of the request, which is all that a library has of it."""
        self.structure = abi.Host(
            abi_version=abi.ABI_VERSION,
            log=abi.Log(self._log),
            respond=abi.Respond(self._respond),
            is_cancelled=abi.IsCancelled(self._is_cancelled),
        )

    def begin(self, running: Running) -> None:
        with self._lock:
            self._running[running.memory.address] = running

    def end(self, address: int) -> Running | None:
        """No response will be taken any more."""
        with self._lock:
            return self._running.pop(address, None)

    def _log(self, level: int, message: bytes | None) -> None:
        number = _LEVELS[level] if 0 <= level < len(_LEVELS) else logging.INFO
        text = (message or b"").decode("utf-8", "replace")[:_MAX_LOG_CHARACTERS]
        logger.log(number, "%s backend=%s", text, self._name)

    def _is_cancelled(self, request: int | None) -> int:
        running = self._running.get(request or 0)
        return int(running is not None and running.factory.is_cancelled)

    def _respond(
        self, request: int | None, response: int | None, flags: int, error: int | None
    ) -> int:
        try:
            return self._take(request or 0, response, flags, error)
        except Exception as problem:  # whatever it is, C code cannot see it
            logger.exception("a response was lost backend=%s", self._name)
            return _failed(error, abi.INTERNAL, f"the server failed: {problem}")

    def _take(self, request: int, response: int | None, flags: int, error: int | None) -> int:
        is_final = bool(flags & abi.RESPONSE_FINAL)
        with self._lock:
            running = self._running.get(request)
            if running is None:
                text = "the request has had its final response, or there never was one"
                return _failed(error, abi.NOT_FOUND, text)
            if is_final:
                del self._running[request]
        spec = running.spec
        try:
            if not spec.is_decoupled and (not is_final or response is None):
                raise BackendError(
                    f"model '{spec.name}' must give one response to each request, with "
                    "CONCH_RESPONSE_FINAL: it is not decoupled"
                )
            self._send(running, response, is_final=is_final)
        except Exception as problem:  # whatever it is: nobody else answers the request
            self.end(request)
            text = f"model '{spec.name}' gave a response that cannot be sent: {problem}"
            running.factory.send_error(BackendError(text))
            return _failed(error, abi.INVALID_ARG, str(problem))
        return abi.OK

    def _send(self, running: Running, response: int | None, *, is_final: bool) -> None:
        if response is None:
            if is_final:
                running.factory.finish()
            return
        given = abi.Response.from_address(response)
        if given.code != abi.OK:
            text = (given.message or b"").decode("utf-8", "replace")
            where = f"model '{running.spec.name}' failed"
            self.end(running.memory.address)
            running.factory.send_error(abi.serving_error(given.code, text, where))
            return
        running.factory.send(
            outputs_of(given, running.spec), parameters=parameters_of(given), is_final=is_final
        )


def _failed(error: int | None, code: int, text: str) -> int:
    if error:
        abi.Error.from_address(error).write(text)
    return code


def request_addresses(memories: list[RequestMemory]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(memories))(*(item.address for item in memories))
