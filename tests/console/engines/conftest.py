"""A repository with an ONNX model, a worker with a GPU, and tasks that run at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.engines import services
from console.engines.models import EngineBuild
from console.engines.services import Wish
from tests.console.disk import Committed, _tasks_run_at_once, committed, repository
from tests.console.fakes import FakeWorkerClient, make_device, make_worker
from tests.serving.backends import onnx_files
from workers.engine_messages import EngineProgress

__all__ = ["_tasks_run_at_once", "committed", "repository"]


@pytest.fixture
def model(repository: Path, fake_workers: FakeWorkerClient) -> Path:
    """`adder`: two inputs of four columns and any number of rows."""
    fake_workers.infos = [make_worker("gpu-1", devices=[make_device()]), make_worker("cpu-1")]
    directory = repository / "adder"
    onnx_files.write_add_sub(directory)
    (directory / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 32\n')
    return directory


@pytest.fixture
def build(model: Path, operator: Any, committed: Committed) -> Callable[..., EngineBuild]:
    """`build()`: ask for an engine of `adder`, with the tasks run."""

    def make(**changes: Any) -> EngineBuild:
        with committed():
            found = services.build_engine(actor=operator, wish=Wish(model="adder", **changes))
        found.refresh_from_db()
        return found

    return make


@pytest.fixture
def tell(fake_workers: FakeWorkerClient) -> Callable[..., None]:
    """`tell(build, "running", fraction=0.5)`: what the worker says of it."""

    def say(build: EngineBuild, state: str, **more: Any) -> None:
        fields = {"at": time.time(), **more}
        fake_workers.engines[build.build_id] = EngineProgress(
            build.build_id, build.worker_id, build.model, build.target, state, **fields
        )

    return say
