"""The KServe v2 routes: a method and a path lead to a handler; the answer goes back by `reply`.

Transport-neutral, loop thread. Inference is in `http_infer`, the model repository in
`http_repository`. Source: spec protocol_http.md B.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from serving.errors import InvalidArgumentError, ServingError
from serving.frontends import extensions, openai_routes
from serving.frontends.http_generate import GenerateRoutes
from serving.frontends.http_infer import InferRoute
from serving.frontends.http_memory import MemoryRoutes
from serving.frontends.http_messages import (
    TEXT,
    Cancel,
    Handler,
    HttpRequest,
    HttpResponse,
    Reply,
    error_response,
    json_response,
    text_error,
)
from serving.frontends.http_repository import RepositoryRoutes
from serving.frontends.http_trace import TraceRoutes
from serving.frontends.openai_routes import OpenAiRoutes
from serving.options import FrontendOptions
from serving.protocol.parameters import version_number
from serving.protocol.v2_json import parse_json
from serving.restrictions import Restrictions

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

_Route = tuple[Handler, str, int]
_MODEL_PATH = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?(?P<rest>/[a-z_/]+)?"
)
_REPOSITORY_PATH = re.compile(
    r"/v2/repository/(?:(?P<repository>[^/]+)/)??models/(?P<model>[^/]+)/(?P<verb>load|unload)"
)
_INDEX_PATH = re.compile(r"/v2/repository(?:/[^/]+)?/index")
_SHARED_MEMORY_PATH = re.compile(
    r"/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?"
    r"/(?P<verb>status|register|unregister)"
)
_ABSOLUTE = re.compile(r"^https?://[^/]*", re.IGNORECASE)
"""A proxy may send the whole address on the request line."""
_MAX_CACHED_ROUTES = 1024
_MAX_CACHED_PATH_SIZE = 256


class HttpRoutes:
    """Everything that is served on the inference port."""

    def __init__(
        self,
        server: ModelServer,
        options: FrontendOptions,
        memory: ClientMemory,
        tracer: Tracer,
    ) -> None:
        self._server = server
        self._infer = InferRoute(server, options, memory, tracer)
        self._trace = TraceRoutes(server, tracer)
        self._memory = MemoryRoutes(memory)
        self._restrictions = Restrictions(options.http_restricted)
        self._generate = GenerateRoutes(server, options, tracer)
        self._repository = RepositoryRoutes(server)
        self._openai = OpenAiRoutes(server, options, tracer) if options.allow_openai else None
        self._routes: dict[tuple[bytes, bytes], _Route] = {}
        self._fixed: dict[str, dict[bytes, Handler]] = {
            "/v2": {b"GET": self._server_metadata},
            "/v2/health/live": {b"GET": self._live},
            "/v2/health/ready": {b"GET": self._ready},
            "/v2/models/stats": {b"GET": self._statistics},
            "/v2/logging": {b"GET": _read_logging, b"POST": _change_logging},
            "/v2/trace/setting": {b"GET": self._trace.read, b"POST": self._trace.change},
        }
        self._of_model: dict[str, dict[bytes, Handler]] = {
            "": {b"GET": self._model_metadata},
            "/ready": {b"GET": self._model_ready},
            "/config": {b"GET": self._model_config},
            "/stats": {b"GET": self._statistics},
            "/infer": {b"POST": self._infer.handle},
            "/generate": {b"POST": self._generate.once},
            "/generate_stream": {b"POST": self._generate.stream},
            "/trace/setting": {b"GET": self._trace.read, b"POST": self._trace.change},
        }

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        key = (request.method, request.target)
        route = self._routes.get(key)
        if route is None:
            route = self._restricted(self._find(request.method, request.path), request.path)
            if route[0] not in _NOWHERE and len(request.target) <= _MAX_CACHED_PATH_SIZE:
                if len(self._routes) >= _MAX_CACHED_ROUTES:
                    self._routes.clear()  # names that somebody invents must not keep real ones out
                self._routes[key] = route
        handler, model, version = route
        try:
            return handler(request, reply, model, version)
        except ServingError as error:
            reply(error_response(error))
        except Exception:
            logger.exception("a route failed unexpectedly path=%r", request.path)
            reply(text_error(500, "internal error, see the server's log"))
        return None

    def _restricted(self, route: _Route, raw_path: bytes) -> _Route:
        """The route, with a look at the header first where its kind of call is restricted."""
        handler, model, version = route
        category = _category(raw_path) if self._restrictions else ""
        if not category or handler in _NOWHERE:
            return route
        is_openai = _path_of(raw_path).startswith(openai_routes.PREFIX)

        def checked(request: HttpRequest, reply: Reply, model: str, version: int) -> Cancel | None:
            missing = self._restrictions.missing(category, request.header)
            if not missing:
                return handler(request, reply, model, version)
            told = f"This API is restricted, expecting header '{missing}'"
            reply(openai_routes.restricted(missing) if is_openai else text_error(403, told))
            return None

        return checked, model, version

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        if request.path.endswith(b"/infer"):
            return self._infer.refuse_head(request, content_length)
        return None

    def _find(self, method: bytes, raw_path: bytes) -> _Route:
        path = _path_of(raw_path)
        methods, model, version = self._lookup(path)
        is_openai = self._openai is not None and path.startswith(openai_routes.PREFIX)
        if methods is None:
            return openai_routes.not_found if is_openai else _not_found, "", -1
        refusal = openai_routes.not_allowed if is_openai else _not_allowed
        # Clients quote names; Triton does not, and so cannot serve a name with a space.
        return methods.get(method, refusal), unquote(model), version

    def methods_of(self, path: str) -> Collection[bytes]:
        """What can be asked of a path; none of one that is not served."""
        return self._lookup(path)[0] or ()

    def _lookup(self, path: str) -> tuple[Mapping[bytes, Handler] | None, str, int]:
        if self._openai is not None and path.startswith(openai_routes.PREFIX):
            return *self._openai.lookup(path), -1
        if path in self._fixed:
            return self._fixed[path], "", -1
        match = _MODEL_PATH.fullmatch(path)
        if match is not None:
            version = version_number(match["version"]) if match["version"] else -1
            rest = match["rest"] or ""
            if rest == "/trace/setting" and version >= 0:
                return None, "", -1
            return self._of_model.get(rest), match["model"], version
        if _INDEX_PATH.fullmatch(path):
            return {b"POST": self._repository.index}, "", -1
        match = _REPOSITORY_PATH.fullmatch(path)
        if match is not None:
            if match["repository"]:
                return {b"POST": _named_repository}, match["model"], -1
            verb = self._repository.load if match["verb"] == "load" else self._repository.unload
            return {b"POST": verb}, match["model"], -1
        match = _SHARED_MEMORY_PATH.fullmatch(path)
        if match is not None:
            methods = self._memory.methods(match["kind"], match["verb"])
            return methods, match["region"] or "", -1
        return None, "", -1

    # --- health and metadata ---------------------------------------------------------------

    def _live(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        reply(HttpResponse(200 if self._server.is_live else 400, [], TEXT))

    def _ready(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        reply(HttpResponse(200 if self._server.is_ready() else 400, [], TEXT))

    def _server_metadata(
        self, request: HttpRequest, reply: Reply, model: str, version: int
    ) -> None:
        reply(json_response(self._server.server_metadata()))

    def _model_metadata(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        reply(json_response(self._server.model_metadata(model, version)))

    def _model_ready(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        def answer(is_ready: bool) -> None:
            if is_ready:
                reply(HttpResponse(200, [], TEXT))
            else:
                reply(text_error(400, "Model version not ready"))

        is_ready = self._server.is_model_ready(model, version)
        check = self._server.ready_check(model, version) if is_ready else None
        if check is None:
            answer(is_ready)
        else:
            check.add_done_callback(lambda done: answer(not done.cancelled() and done.result()))

    def _model_config(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        from serving.config import json_form  # loads the config messages on first use

        reply(json_response(json_form.to_json(self._server.model_config(model, version))))

    def _statistics(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        rows = self._server.model_statistics(model, version)
        reply(json_response({"model_stats": rows}))


def _category(raw_path: bytes) -> str:
    """The kind of call for --http-restricted-api, by the path alone. Source: spec HTTP-060."""
    path = _path_of(raw_path)
    if path == "/v2":
        return "metadata"
    if path.startswith(openai_routes.PREFIX):
        return openai_routes.category(path)
    for start, category in _FIXED_CATEGORIES.items():
        if path.startswith(start):
            return category
    match = _MODEL_PATH.fullmatch(path)
    return "" if match is None else _MODEL_CATEGORIES.get(match["rest"] or "", "")


def _path_of(raw_path: bytes) -> str:
    return _ABSOLUTE.sub("", raw_path.decode("latin-1"), count=1)


_FIXED_CATEGORIES = {
    "/v2/health/": "health",
    "/v2/models/stats": "statistics",
    "/v2/repository": "model-repository",
    "/v2/systemsharedmemory": "shared-memory",
    "/v2/cudasharedmemory": "shared-memory",
    "/v2/trace/": "trace",
    "/v2/logging": "logging",
}
_MODEL_CATEGORIES = {
    "": "metadata",
    "/ready": "health",
    "/config": "model-config",
    "/stats": "statistics",
    "/infer": "inference",
    "/generate": "inference",
    "/generate_stream": "inference",
    "/trace/setting": "trace",
}


def _not_found(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    reply(text_error(404, "Not Found"))


def _not_allowed(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    reply(text_error(405, "Method Not Allowed"))


def _named_repository(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    reply(text_error(501, "'repository_name' specification is not supported"))


def _read_logging(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    reply(json_response(extensions.read_log_settings()))


def _change_logging(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    wanted = parse_json(request.body, "log settings")
    if not isinstance(wanted, dict):
        raise InvalidArgumentError("the log settings must be a JSON object")
    reply(json_response(extensions.change_log_settings(wanted)))


_NOWHERE = (_not_found, openai_routes.not_found)
