"""What loads and unloads of models with processes on GPUs say of the devices' memory (issue of
Python models: the memory that came back is recorded), with a driver that counts our processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving import devices
from serving.options import ControlMode, ServerOptions
from serving.repository.states import IndexEntry
from serving.server import ModelServer
from workers.host import WorkerHost

_MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
_CONFIG = """
name: "m" backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
instance_group { kind: KIND_%s count: 2 %s }
"""


def _children() -> int:
    return sum(len(item.read_text().split()) for item in Path("/proc/self/task").glob("*/children"))


class Driver:
    """An NVML of two devices: each of our processes holds 500 MB of both."""

    def __init__(self) -> None:
        self.others = _children()

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "made up"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        used = 300_000_000 + 500_000_000 * (_children() - self.others)
        return SimpleNamespace(used=used, total=80_000_000_000)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pynvml", Driver())
    for cached in (devices._nvml, devices._devices):
        cached.cache_clear()
    yield
    for cached in (devices._nvml, devices._devices):
        cached.cache_clear()


async def _load_and_unload(root: Path, kind: str, gpus: str) -> list[IndexEntry]:
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "1" / "model.py").write_text(_MODEL)
    (root / "m" / "config.pbtxt").write_text(_CONFIG % (kind, gpus))
    server = ModelServer(ServerOptions((root,), model_control_mode=ControlMode.EXPLICIT))
    told: list[IndexEntry] = []
    server.add_state_listener(told.append)
    await server.start()
    try:
        await server.load_model("m")
        await server.unload_model("m")
        await server.settled()
    finally:
        await server.stop()
    return told


@pytest.mark.usefixtures("driver")
async def test_the_events_of_a_load_and_an_unload_tell_of_the_memory(tmp_path: Path) -> None:
    told = await _load_and_unload(tmp_path, "GPU", "gpus: [ 1 ]")

    (ready,) = [entry for entry in told if entry.state == "READY"]
    gone = told[-1]
    assert ready.note == "memory in use on GPU 1: 300 MB before, 1300 MB after"
    assert gone.note == "memory in use on GPU 1: 1300 MB before, 300 MB after"
    assert (gone.state, gone.reason) == ("UNAVAILABLE", "unloaded")


@pytest.mark.usefixtures("driver")
async def test_models_without_a_gpu_say_nothing_of_it(tmp_path: Path) -> None:
    told = await _load_and_unload(tmp_path, "CPU", "")

    assert [entry.note for entry in told] == [""] * len(told)


def test_the_event_that_the_console_shows_has_it() -> None:
    events: list[Any] = []
    host = WorkerHost.__new__(WorkerHost)
    host._publisher = SimpleNamespace(tell=events.append)  # type: ignore[assignment]
    host._settings = SimpleNamespace(worker_id="w")  # type: ignore[assignment]

    host._on_state(IndexEntry("m", 1, "UNAVAILABLE", "unloaded", note="memory in use on GPU 0: …"))

    assert events[0].reason == "unloaded; memory in use on GPU 0: …"
