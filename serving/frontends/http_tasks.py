"""Requests that take a while, each answered by a Task. Loop thread.

A client that goes away does not stop one: no model is left half loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from serving.errors import ServingError
from serving.frontends.http_messages import HttpResponse, Reply, error_response, text_error

logger = logging.getLogger(__name__)


class ReplyTasks:
    """Holds the running ones: the event loop alone does not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, call: Coroutine[Any, Any, None], reply: Reply) -> None:
        """Answers 200 with nothing once `call` is done, or with its error."""
        task = asyncio.ensure_future(_answer(call, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(call: Coroutine[Any, Any, None], reply: Reply) -> None:
    try:
        await call
    except ServingError as error:
        reply(error_response(error))
    except Exception:
        logger.exception("an operation failed unexpectedly")
        reply(text_error(500, "internal error, see the server's log"))
    else:
        reply(HttpResponse(200))
