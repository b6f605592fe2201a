"""What Amazon SageMaker calls: /ping, /invocations, and /models of a multi-model endpoint.

Inference goes on to the routes of the HTTP port. Loop thread. Source: spec TOOL-080, CLI-070.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from serving.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, ServingError
from serving.frontends.http_messages import (
    Cancel,
    HttpRequest,
    HttpResponse,
    Reply,
    json_members,
    json_response,
    text_error,
)
from serving.frontends.http_routes import HttpRoutes
from serving.frontends.sagemaker_models import SageMakerModels, is_out_of_memory
from serving.frontends.vendor_body import refuse_head, translated
from serving.options import SageMakerOptions

if TYPE_CHECKING:
    from serving.server import ModelServer

logger = logging.getLogger(__name__)

_VENDOR = b"sagemaker"
_MODEL_PATH = re.compile(r"/models/(?P<model>[^/]+)(?P<rest>/invoke)?")
_TARGET = "x-amzn-sagemaker-target-model"


class SageMakerRoutes:
    def __init__(self, server: ModelServer, options: SageMakerOptions, routes: HttpRoutes) -> None:
        self._server = server
        self._options = options
        self._routes = routes
        self._models = SageMakerModels(server)
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        try:
            return self._handle(request, reply)
        except ServingError as error:
            reply(_error(error))
        except Exception:
            logger.exception("a route failed unexpectedly path=%r", request.path)
            reply(text_error(500, "internal error, see the server's log"))
        return None

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        return refuse_head(self._routes, request, content_length)

    def _handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        path = request.path.decode("latin-1")
        match = _MODEL_PATH.fullmatch(path)
        route = (request.method, "/models/" + (match["rest"] or "") if match else path)
        name = unquote(match["model"]) if match else ""
        if route == (b"GET", "/ping"):
            target = f"/v2/health/{self._options.ping_mode}"
            return self._routes.handle(*translated(request, target, reply, _VENDOR))
        if route == (b"POST", "/invocations"):
            return self._infer(request, self._default_model(), reply)
        if route == (b"GET", "/models"):
            reply(json_response({"models": self._models.rows()}))
        elif route == (b"POST", "/models"):
            wanted = json_members(request)
            work = self._models.load(_text(wanted, "model_name"), _text(wanted, "url"))
            self._run(work, reply)
        elif route == (b"GET", "/models/"):
            reply(json_response(self._models.row(name)))
        elif route == (b"DELETE", "/models/"):
            self._run(self._models.unload(name), reply)
        elif route == (b"POST", "/models//invoke"):
            self._models.check(name)
            return self._infer(request, self._target(request, name), _MemoryReply(reply))
        elif path in ("/ping", "/invocations"):
            reply(text_error(405, "Method Not Allowed"))
        else:
            reply(text_error(400, f"no route of SageMaker's: {request.method.decode()} {path}"))
        return None

    def _target(self, request: HttpRequest, name: str) -> str:
        """The header may name a model that has come with this one, as a part of an ensemble."""
        target = request.header(_TARGET)
        try:
            is_model = target is not None and self._server.is_model_ready(target)
        except ServingError:
            is_model = False  # the platform puts names of archives there, too
        return target if target is not None and is_model else name

    def _infer(self, request: HttpRequest, model: str, reply: Reply) -> Cancel | None:
        target = f"/v2/models/{quote(model, safe='')}/{self._options.inference_type}"
        return self._routes.handle(*translated(request, target, reply, _VENDOR))

    def _default_model(self) -> str:
        return self._options.default_model or only_model(
            self._server, "set the environment variable SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
        )

    def _run(self, work: Coroutine[Any, Any, None], reply: Reply) -> None:
        task = asyncio.ensure_future(_answer(work, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def only_model(server: ModelServer, hint: str) -> str:
    """The one model that serves. Raises InvalidArgumentError where there is none, or several."""
    names = {model.name for model in server.metrics_models()}
    if len(names) != 1:
        raise InvalidArgumentError(
            f"expected one ready model to be the default, there are {len(names)}: {hint}"
        )
    return names.pop()


class _MemoryReply:
    """SageMaker unloads other models, and tries again, where an answer says 507."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.start_stream = reply.start_stream

    def __call__(self, response: HttpResponse) -> None:
        if response.status >= 400:
            told = b"".join(map(bytes, response.parts)).decode("utf-8", "replace")
            if is_out_of_memory(ServingError(told)):
                response.status = 507
        self._reply(response)


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"the member '{name}' must be a string that is not empty")
    return value


async def _answer(work: Coroutine[Any, Any, None], reply: Reply) -> None:
    try:
        await work
    except ServingError as error:
        reply(_error(error))
    except Exception:
        logger.exception("a change of models failed unexpectedly")
        reply(text_error(500, "internal error, see the server's log"))
    else:
        reply(HttpResponse(200))


def _error(error: ServingError) -> HttpResponse:
    status = 400
    if isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, AlreadyExistsError):
        status = 409
    elif is_out_of_memory(error):
        status = 507
    return text_error(status, error.message)
