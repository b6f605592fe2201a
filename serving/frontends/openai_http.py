"""A port of its own for OpenAI's routes, with the two others that their programs look for there.

For who starts Triton's OpenAI frontend, which listens on port 9000. Loop thread.
Source: spec TOOL-060 to TOOL-066.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.frontends import openai_routes
from serving.frontends.http_messages import TEXT, Cancel, HttpRequest, HttpResponse, Reply, Routes

if TYPE_CHECKING:
    from serving.server import ModelServer


class OpenAiPort:
    """/v1/..., GET /metrics and GET /health/ready."""

    def __init__(self, server: ModelServer, routes: Routes, metrics: Routes) -> None:
        """`routes` has /v1, restricted as on the HTTP port; `metrics` has /metrics."""
        self._server = server
        self._routes = routes
        self._metrics = metrics

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        path = request.path
        if path.startswith(openai_routes.PREFIX.encode()):
            return self._routes.handle(request, reply)
        if path == b"/metrics":
            return self._metrics.handle(request, reply)
        if path != b"/health/ready":
            openai_routes.not_found(request, reply, "", -1)
        elif request.method != b"GET":
            openai_routes.not_allowed(request, reply, "", -1)
        else:
            reply(HttpResponse(200 if self._server.is_ready() else 400, [], TEXT))
        return None

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        return self._routes.refuse_head(request, content_length)
