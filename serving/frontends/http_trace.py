"""The trace extension over HTTP: what is traced, for all models or for one. Loop thread.

Source: spec HTTP-018, HTTP-080..083.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.errors import InvalidArgumentError
from serving.frontends import extensions
from serving.frontends.http_messages import HttpRequest, Reply, json_response
from serving.protocol.v2_json import parse_json

if TYPE_CHECKING:
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer


class TraceRoutes:
    def __init__(self, server: ModelServer, tracer: Tracer) -> None:
        self._server = server
        self._tracer = tracer

    def read(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        extensions.check_traced_model(self._server, model)
        reply(json_response(self._tracer.settings(model).as_json()))

    def change(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        extensions.check_traced_model(self._server, model)
        wanted = parse_json(request.body, "trace settings")
        if not isinstance(wanted, dict):
            raise InvalidArgumentError("the trace settings must be a JSON object")
        reply(json_response(self._tracer.change(wanted, model).as_json()))
