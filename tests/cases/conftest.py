"""Servers for the cases: each test has its own, and every one must be unharmed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.options import ControlMode, ServerOptions
from serving.server_thread import ServerThread
from tests.cases.lifecycle_server import ANY_PORTS, Client
from tests.serving.model_files import write_identity

Start = Callable[..., Client]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    root = tmp_path / "models"
    root.mkdir()
    write_identity(root, "bystander")
    opened: list[tuple[ServerThread, Client]] = []

    def run(*more: Path, **options: Any) -> Client:
        options.setdefault("model_control_mode", ControlMode.EXPLICIT)
        if options["model_control_mode"] is ControlMode.EXPLICIT:
            options["load_models"] = ("bystander",)
        thread = ServerThread(ServerOptions((root, *more), **options), ANY_PORTS)
        thread.start(30)
        opened.append((thread, Client(thread)))
        return opened[-1][1]

    yield run
    for thread, client in opened:
        assert client.is_unharmed()
        client.close()
        thread.stop()


@pytest.fixture
def client(start: Start) -> Client:
    return start()
