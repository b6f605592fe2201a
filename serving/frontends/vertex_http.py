"""What Vertex AI calls: a health and a predict route, whose paths the platform chooses.

A header of the predict route sends a request on to another route of the HTTP port, as long as that
reads or infers. Loop thread. Source: spec TOOL-081, CLI-071.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from serving.errors import ServingError
from serving.frontends.http_messages import (
    Cancel,
    HttpRequest,
    HttpResponse,
    Reply,
    error_response,
    text_error,
)
from serving.frontends.http_routes import HttpRoutes
from serving.frontends.sagemaker_http import only_model
from serving.frontends.vendor_body import refuse_head, translated
from serving.options import VertexOptions

if TYPE_CHECKING:
    from serving.server import ModelServer

REDIRECT = "x-vertex-ai-triton-redirect"
_VENDOR = b"vertex-ai"
_MAY_POST = re.compile(
    r"/v2/models/.+/(infer|generate|generate_stream)|/v2/repository/index"
    r"|/v1/(completions|chat/completions|embeddings)"
)


class VertexRoutes:
    def __init__(
        self,
        server: ModelServer,
        options: VertexOptions,
        routes: HttpRoutes,
        redirects: HttpRoutes,
    ) -> None:
        """`redirects`: where a caller's own choice of a route goes, with what restricts it."""
        self._server = server
        self._options = options
        self._routes = routes
        self._redirects = redirects

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        path = request.path.decode("latin-1")
        if path == self._options.health_route:
            if request.method != b"GET":
                reply(text_error(405, "Method Not Allowed"))
                return None
            return self._pass_on(request, "/v2/health/ready", reply)
        if path != self._options.predict_route:
            reply(text_error(400, f"no route of Vertex AI's: {path}"))
            return None
        if request.method != b"POST":
            reply(text_error(405, "Method Not Allowed"))
            return None
        redirect = request.header(REDIRECT)
        if redirect is not None:
            return self._redirect(request, redirect.strip(), reply)
        try:
            model = self._options.default_model or only_model(
                self._server, "start with --vertex-ai-default-model"
            )
        except ServingError as error:
            reply(error_response(error))
            return None
        return self._pass_on(request, f"/v2/models/{quote(model, safe='')}/infer", reply)

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        return refuse_head(self._routes, request, content_length)

    def _redirect(self, request: HttpRequest, target: str, reply: Reply) -> Cancel | None:
        path = "/" + target.partition("?")[0].lstrip("/")
        methods = self._redirects.methods_of(path)
        if not methods:
            reply(text_error(400, f"{REDIRECT} names no route: {path}"))
            return None
        if b"GET" in methods:
            method = b"GET"
        elif _MAY_POST.fullmatch(path):
            method = b"POST"
        else:
            reply(text_error(403, f"{REDIRECT} may not lead to {path}, which changes the server"))
            return None
        return self._redirects.handle(*translated(request, path, reply, _VENDOR, method))

    def _pass_on(self, request: HttpRequest, target: str, reply: Reply) -> Cancel | None:
        return self._routes.handle(*translated(request, target, reply, _VENDOR))
