"""The model repository extension over HTTP: index, load, unload. Loop thread.

Loads and unloads take seconds, so each runs as a Task.
Source: spec HTTP-010 to HTTP-013, REP-050 and REP-080.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from serving.errors import InvalidArgumentError
from serving.frontends.http_messages import (
    HttpRequest,
    Reply,
    json_members,
    json_response,
)
from serving.frontends.http_tasks import ReplyTasks

if TYPE_CHECKING:
    from serving.server import ModelServer


class RepositoryRoutes:
    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._tasks = ReplyTasks()

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
        self._tasks.run(call, reply)

    def unload(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        unload_dependents = False
        for name, value in _parameters(request).items():
            if name != "unload_dependents":
                continue
            if not isinstance(value, bool):
                raise InvalidArgumentError("unload parameter 'unload_dependents' must be a bool")
            unload_dependents = value
        call = self._server.unload_model(model, unload_dependents=unload_dependents)
        self._tasks.run(call, reply)


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
