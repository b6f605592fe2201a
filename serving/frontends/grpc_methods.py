"""Methods of gRPC services, as functions of bytes or of messages. Loop thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from serving.frontends.grpc_call import UnaryCall
from serving.frontends.grpc_stream_call import StreamCall, StreamHandler
from serving.frontends.http2.stream import Part
from serving.protocol.v2_grpc_split import parse

Handle = Callable[[Part, UnaryCall], None]
"""Takes a message; answers the call at once or later. May raise ServingError."""


@dataclass(frozen=True, slots=True)
class Method:
    """One of the two is set."""

    name: str
    handle: Handle | None = None
    open_stream: Callable[[StreamCall], StreamHandler] | None = None


def unary(name: str, request: Any, handler: Callable[[Any], Any]) -> Method:
    """`request`: the class of the message that comes. `handler` gives the one that goes, or is a
    coroutine function that does; it is cancelled when the client leaves.
    """
    if not inspect.iscoroutinefunction(handler):

        def handle(data: Part, call: UnaryCall) -> None:
            call.reply([handler(parse(request, data)).SerializeToString()])

        return Method(name, handle)

    def begin(data: Part, call: UnaryCall) -> None:
        work = _answer(handler(parse(request, data)), call)
        task = asyncio.get_running_loop().create_task(work)
        call.on_cancel = lambda: _cancel(task)

    return Method(name, begin)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _answer(work: Awaitable[Any], call: UnaryCall) -> None:
    try:
        call.reply([(await work).SerializeToString()])
    except Exception as error:
        call.fail_with(error)
