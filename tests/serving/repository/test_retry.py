"""--model-load-retry-count (REP-057): what may pass is tried again, what is wrong is not."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import pytest

from serving import cli
from serving.errors import BackendError, InvalidArgumentError, ModelLoadError, ServingError
from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from tests.serving.repository.fakes import FakeLoader, FakePrepared, rows, write_model


class Flaky(FakeLoader):
    """Fails with `errors`, one after the other, and then loads."""

    def __init__(self, *errors: ServingError) -> None:
        super().__init__()
        self.errors = list(errors)
        self.tries = 0

    async def load_version(self, prepared: FakePrepared, version: int, threads: Executor) -> Any:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return await super().load_version(prepared, version, threads)


async def load(root, loader: Flaky, retries: int) -> list[str]:
    write_model(root, "m", v1="x")
    lifecycle = Lifecycle()
    manager = RepositoryManager([root], lifecycle, loader, LoadThreads(), load_retries=retries)
    try:
        await manager.load("m")
    finally:
        found = rows(manager.index())
        await manager.close(5)
    return found


def wrapped(cause: Exception) -> ModelLoadError:
    error = ModelLoadError(f"failed to load 'm' version 1: initialize: {cause}")
    error.__cause__ = cause
    return error


async def test_rep_057_load_that_fails_for_the_moment_is_tried_again(tmp_path):
    loader = Flaky(BackendError("the device is busy"), wrapped(OSError("stale file handle")))

    assert await load(tmp_path, loader, 2) == ["m:1 READY"]
    assert loader.tries == 3


async def test_rep_057_after_the_last_try_the_last_reason_is_told(tmp_path):
    loader = Flaky(BackendError("first"), BackendError("second"), BackendError("third"))

    with pytest.raises(ModelLoadError, match="second"):
        await load(tmp_path, loader, 1)
    assert loader.tries == 2


async def test_rep_057_without_the_option_nothing_is_tried_again(tmp_path):
    loader = Flaky(BackendError("the device is busy"))

    with pytest.raises(ModelLoadError, match="busy"):
        await load(tmp_path, loader, 0)
    assert loader.tries == 1


@pytest.mark.parametrize("wrap", [lambda error: error, wrapped])
async def test_rep_057_fault_of_the_files_is_not_tried_again(tmp_path, wrap):
    loader = Flaky(wrap(InvalidArgumentError("config.pbtxt:3:1: dims are missing")))

    with pytest.raises(ModelLoadError, match="dims are missing"):
        await load(tmp_path, loader, 5)
    assert loader.tries == 1


async def test_rep_057_python_model_that_fails_to_start_once_loads_at_the_second_try(
    serve, tmp_path
):
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(
        "from pathlib import Path\n"
        "class TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        marker = Path(__file__).parents[2] / '.tried'\n"
        "        if not marker.exists():\n"
        "            marker.touch()\n"
        "            raise ConnectionError('the licence server is away')\n"
        "    def execute(self, requests):\n"
        "        return []\n"
    )
    (model / "config.pbtxt").write_text(
        'backend: "python"\n'
        'input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }\n'
        'output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    )
    server = await serve(model_load_retry_count=1)

    await server.load_model("m")

    assert server.ready_versions("m") == [1]


def test_rep_057_count_on_the_command_line():
    line = cli.parse(["--model-repository=/m", "--model-load-retry-count=3"])
    assert line is not None
    assert line.server.model_load_retry_count == 3
