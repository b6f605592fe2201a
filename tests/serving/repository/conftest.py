"""A real server over repositories of the test, without front ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.options import ControlMode, ServerOptions
from serving.server import ModelServer

Serve = Callable[..., Awaitable[ModelServer]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """`await serve(root, ..., option=...)`: a started server; `tmp_path` where no root is given."""
    servers: list[ModelServer] = []

    async def start(*roots: Path, **options: Any) -> ModelServer:
        options.setdefault("model_control_mode", ControlMode.EXPLICIT)
        options.setdefault("exit_timeout_secs", 5)
        server = ModelServer(ServerOptions(roots or (tmp_path,), **options))
        servers.append(server)
        await server.start()
        return server

    yield start
    for server in servers:
        await server.stop()
