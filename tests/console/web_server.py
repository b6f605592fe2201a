"""The whole ASGI application on a port of its own, for tests in a real browser."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import uvicorn


class WebServer:
    def __init__(self, application: Any) -> None:
        config = uvicorn.Config(application, port=0, log_level="error", ws="websockets-sansio")
        self.server = uvicorn.Server(config)
        self.started = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=self._run, name="web-server", daemon=True)

    def __enter__(self) -> WebServer:
        self.thread.start()
        assert self.started.wait(20), "the web server did not start"
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://localhost:{port}"
        return self

    def __exit__(self, *details: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive(), "the web server did not end"

    def call(self, function: Any, *arguments: Any) -> None:
        """Runs a plain function on the server's event loop."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self.server.serve())
        while not self.server.started and not serving.done():
            await asyncio.sleep(0.01)
        self.started.set()
        await serving
