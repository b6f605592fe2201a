"""The model repository extension over HTTP: index, load, unload. Loop thread.

Loads and unloads take seconds, so each runs as a Task; a client that goes away does not stop it.
Source: spec HTTP-010 to HTTP-013, REP-050 and REP-080.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from serving.errors import InvalidArgumentError, ServingError
from serving.frontends.http_messages import (
    HttpRequest,
    HttpResponse,
    Reply,
    error_response,
    json_members,
    json_response,
    text_error,
)

if TYPE_CHECKING:
    from serving.server import ModelServer

logger = logging.getLogger(__name__)


class RepositoryRoutes:
    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    def index(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        ready = json_members(request).get("ready", False)
        if not isinstance(ready, bool):
            raise InvalidArgumentError("the member 'ready' of an index request must be a bool")
        rows = []
        for entry in self._server.repository_index(ready_only=ready):
            row = {"name": entry.name}
            if entry.version is not None:
                row["version"] = str(entry.version)
            if entry.state:
                row["state"] = entry.state
            if entry.reason:
                row["reason"] = entry.reason
            rows.append(row)
        reply(json_response(rows))

    def load(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        config: str | None = None
        files: dict[str, bytes] = {}
        for name, value in _parameters(request).items():
            if not isinstance(value, str):
                raise InvalidArgumentError(f"load parameter '{name}' must be a string")
            if name == "config":
                config = value
            elif name.startswith("file:"):
                files[name.removeprefix("file:")] = _base64(name, value)
            else:
                raise InvalidArgumentError(
                    f"unrecognized load parameter '{name}'; known are 'config' and 'file:<path>'"
                )
        call = self._server.load_model(model, config_override=config, files=files or None)
        self._run(call, reply)

    def unload(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        unload_dependents = False
        for name, value in _parameters(request).items():
            if name != "unload_dependents":
                continue
            if not isinstance(value, bool):
                raise InvalidArgumentError("unload parameter 'unload_dependents' must be a bool")
            unload_dependents = value
        call = self._server.unload_model(model, unload_dependents=unload_dependents)
        self._run(call, reply)

    def _run(self, call: Coroutine[Any, Any, None], reply: Reply) -> None:
        task = asyncio.ensure_future(_answer(call, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(call: Coroutine[Any, Any, None], reply: Reply) -> None:
    try:
        await call
    except ServingError as error:
        reply(error_response(error))
    except Exception:
        logger.exception("a repository operation failed unexpectedly")
        reply(text_error(500, "internal error, see the server's log"))
    else:
        reply(HttpResponse(200))


def _parameters(request: HttpRequest) -> dict[str, Any]:
    parameters = json_members(request).get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidArgumentError("the member 'parameters' must be a JSON object")
    return parameters


def _base64(name: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(f"load parameter '{name}' is not valid base64") from None
