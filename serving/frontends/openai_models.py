"""/v1/models: which models there are, and loading and unloading them. Loop thread.

Source: spec TOOL-062, TOOL-063.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from serving.errors import InvalidArgumentError, NotFoundError, ServingError
from serving.frontends.http_messages import HttpRequest, HttpResponse, Reply, json_response
from serving.protocol.openai import answers

if TYPE_CHECKING:
    from serving.model import Model
    from serving.server import ModelServer

logger = logging.getLogger(__name__)


def openai_error(error: ServingError) -> HttpResponse:
    status, body = answers.error_of(error)
    return json_response(body, status)


def internal_error() -> HttpResponse:
    body = answers.error_body("internal error, see the server's log", "server_error")
    return json_response(body, 500)


def ready_model(server: ModelServer, name: str) -> Model:
    """Raises NotFoundError for one that is not there, as OpenAI does."""
    try:
        return server.receiver(name)
    except NotFoundError as error:
        raise NotFoundError(
            f"the model '{name}' does not exist: {error.message}; GET /v1/models lists all"
        ) from error


class ModelsRoutes:
    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._created = int(time.time())
        self._tasks: set[asyncio.Task[None]] = set()

    def list(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        names = dict.fromkeys(item.name for item in self._server.metrics_models())
        reply(json_response(answers.model_list(names, self._created)))

    def one(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        row = answers.model_row(ready_model(self._server, model).name, self._created)
        reply(json_response(row))

    def load(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        if self._serves(model):
            raise InvalidArgumentError(f"model '{model}' is loaded already")
        self._run(self._server.load_model(model), reply)

    def unload(self, request: HttpRequest, reply: Reply, model: str, version: int) -> None:
        if not self._serves(model):
            raise InvalidArgumentError(f"model '{model}' is not loaded")
        self._run(self._server.unload_model(model), reply)

    def _serves(self, name: str) -> bool:
        self._server.repositories()  # is it allowed at all?
        return any(item.name == name for item in self._server.metrics_models())

    def _run(self, work: Coroutine[Any, Any, None], reply: Reply) -> None:
        task = asyncio.ensure_future(_answer(work, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(work: Coroutine[Any, Any, None], reply: Reply) -> None:
    try:
        await work
    except ServingError as error:
        reply(openai_error(error))
    except Exception:
        logger.exception("a change of models failed unexpectedly")
        reply(internal_error())
    else:
        reply(json_response({"status": "success"}))
