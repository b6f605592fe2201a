"""A ModelServer and its front ends on an event-loop thread of their own.

For programs whose main thread is busy otherwise: Celery workers, tests, notebooks. The thread owns
server and front ends; other threads reach them through `call`, `invoke` and `post` only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from serving.errors import UnavailableError
from serving.frontends import Frontends, start_frontends
from serving.options import FrontendOptions, ServerOptions
from serving.server import ModelServer

logger = logging.getLogger(__name__)
T = TypeVar("T")

_GRACE_S = 1.0
_FORCED_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Ports:
    """0 where the door is closed."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


class ServerThread:
    def __init__(self, server: ServerOptions, frontends: FrontendOptions | None = None) -> None:
        self._frontend_options = frontends or FrontendOptions()
        self._loop = uvloop.new_event_loop()
        self._started: Future[None] = Future()
        self._stop_wanted = asyncio.Event()
        self._frontends: Frontends | None = None
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)
        self.options = server
        self.server = ModelServer(server)
        """Touch it on its own thread only, by `call` and `invoke`."""

    def __repr__(self) -> str:
        return f"<ServerThread alive={self.is_alive} {self.ports}>"

    @property
    def ports(self) -> Ports:
        opened = self._frontends
        if opened is None:
            return Ports()
        return Ports(opened.http_port, opened.grpc_port, opened.metrics_port)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, timeout_s: float | None = None) -> None:
        """Block until the ports are open and the models of the start are loaded.

        Raises: what `start_frontends` and `ModelServer.start` raise (OSError, ServingError);
        TimeoutError after `timeout_s`. Nothing keeps running then.
        """
        self._thread.start()
        try:
            self._started.result(timeout_s)
        except BaseException:
            self.stop()
            raise

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the server's loop and wait for its result. Not from that loop."""
        return self.submit(work).result(timeout_s)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the server's loop. Raises UnavailableError when that has ended."""
        if not self._thread.is_alive():
            work.close()
            raise UnavailableError("the server has stopped")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def post(self, work: Callable[[], object]) -> None:
        """Call a plain function on the server's loop, and do not wait. Raises UnavailableError."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise UnavailableError("the server has stopped") from None

    def invoke(self, work: Callable[[], T], timeout_s: float | None = None) -> T:
        """Call a plain function on the server's loop and wait for its result."""

        async def run() -> T:
            return work()

        return self.call(run(), timeout_s)

    def stop(self, timeout_s: float | None = None) -> None:
        """Finish what runs, unload, close the ports, end the thread.

        Raises: TimeoutError when the thread is still busy after `timeout_s` (default: the server's
        exit timeout and some seconds).
        """
        if not self._thread.is_alive():
            return
        if timeout_s is None:
            timeout_s = self.options.exit_timeout_secs + _FORCED_STOP_S
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop_wanted.set)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the server did not stop within {timeout_s:g} s")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:
            if self._started.done():
                logger.exception("the server thread failed")
            else:
                self._started.set_exception(error)
        finally:
            self._loop.run_until_complete(_cancel_the_rest())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _main(self) -> None:
        self._frontends = await start_frontends(self.server, self._frontend_options)
        starting = asyncio.ensure_future(self.server.start())
        stopping = asyncio.ensure_future(self._stop_wanted.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            else:
                starting.result()
                self._started.set_result(None)
                await stopping
        finally:
            stopping.cancel()
            await self.server.stop()
            await self._frontends.stop(_GRACE_S)


async def _cancel_the_rest() -> None:
    """Whoever still waits in `call` must hear of the end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
