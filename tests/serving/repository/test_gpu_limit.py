"""--model-load-gpu-limit (REP-073): no load to a GPU that is fuller than allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving import cli, devices
from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.errors import UnavailableError
from serving.repository.load_threads import LoadThreads
from serving.repository.loader import ModelLoader
from serving.repository.source import LoadRequest, Source
from serving.repository.storage import stamp_model
from serving.services import ModelServices
from tests.serving.model_files import write_identity


async def load(directory: Path, limits: dict[int, float]) -> None:
    loader = ModelLoader(
        BackendRegistry(),
        ModelServices(LoopClock(asyncio.get_running_loop()), gpu_count=2),
        gpu_limits=limits,
    )
    source = Source(directory.name, directory, stamp_model(directory), LoadRequest())
    model = await loader.load_version(loader.prepare(source), 1, LoadThreads())
    await model.drain_and_close()


def on_gpu(root: Path, gpu: int) -> Path:
    group = f"instance_group {{ count: 1 kind: KIND_GPU gpus: [ {gpu} ] }}\n"
    return write_identity(root, "m", extra=group)


@pytest.fixture(autouse=True)
def half_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU 0 is half full, of GPU 1 nobody knows."""
    monkeypatch.setattr(devices, "memory_in_use", {0: 0.5, 1: None}.get)


@pytest.mark.parametrize("limit", [0.0, 0.4])
async def test_rep_073_load_to_a_fuller_gpu_is_refused(tmp_path, limit):
    with pytest.raises(UnavailableError, match="memory limit set for GPU 0 .* 50% is in use"):
        await load(on_gpu(tmp_path, 0), {0: limit})


@pytest.mark.parametrize("limits", [{}, {0: 0.5}, {0: 0.9}, {1: 0.0}])
async def test_rep_073_load_with_room_below_the_limit_goes_on(tmp_path, limits):
    await load(on_gpu(tmp_path, 0), limits)


async def test_rep_073_gpu_that_reports_nothing_stops_no_load(tmp_path):
    await load(on_gpu(tmp_path, 1), {1: 0.0})


async def test_rep_073_model_on_the_cpu_is_no_matter_of_gpus(tmp_path):
    await load(write_identity(tmp_path, "m", extra="instance_group { kind: KIND_CPU }\n"), {0: 0.0})


def test_rep_073_limits_on_the_command_line():
    line = cli.parse(
        ["--model-repository=/m", "--model-load-gpu-limit=0:0.8", "--model-load-gpu-limit=1:1"]
    )
    assert line is not None
    assert line.server.model_load_gpu_limits == {0: 0.8, 1: 1.0}


@pytest.mark.parametrize("text", ["0", "0:", "a:0.5", "0:1.5", "0:-1", "-1:0.5", "0:0.5:1"])
def test_rep_073_limit_that_makes_no_sense_is_refused(text):
    with pytest.raises(cli.CommandLineError, match="<device>:<fraction>"):
        cli.parse(["--model-repository=/m", f"--model-load-gpu-limit={text}"])
