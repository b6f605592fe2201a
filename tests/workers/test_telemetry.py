from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil

from serving import devices
from serving.backends.registry import BackendRegistry
from serving.errors import FailureReason
from serving.scheduling.sequence.lanes import SlotUsage
from serving.stats import ModelStats
from tests.waiting import wait_until_blocking
from workers.messages import DeviceSample
from workers.telemetry import ModelSampler, ProcessSampler, backend_states, device_samples


def fake_model(name: str = "m", version: int = 1) -> Any:
    class Loaded(SimpleNamespace):
        __hash__ = object.__hash__  # type: ignore[assignment]

    return Loaded(name=name, version=version, stats=ModelStats(), queued_count=3, slot_usage=None)


def test_sample_holds_what_happened_since_the_last_one():
    model, sampler = fake_model(), ModelSampler()
    model.stats.record_success(2_000_000, 500_000, 100_000, 300_000, 100_000)
    model.stats.record_execution(4, "full", 1, 2, 3)
    sampler.sample([model])

    model.stats.record_success(2_000_000, 400_000, 100_000, 300_000, 200_000, batch_size=3)
    model.stats.record_success(2_000_000, 600_000, 100_000, 300_000, 200_000, batch_size=5)
    model.stats.record_execution(8, "delay", 1, 2, 3)
    model.stats.record_failure(FailureReason.BACKEND, 10)
    model.stats.record_failure(FailureReason.REJECTED, 10)
    [sample] = sampler.sample([model])

    assert (sample.name, sample.version, sample.queued) == ("m", "1", 3)
    assert (sample.success_count, sample.failure_count, sample.rejected_count) == (2, 2, 1)
    assert (sample.inference_count, sample.execution_count) == (8, 1)
    assert (sample.queue_us, sample.compute_output_us) == (500.0, 200.0)
    assert sample.batch_sizes == {"8": 1}
    assert sample.close_reasons == {"delay": 1}
    assert sum(sample.latency_buckets.values()) == 2
    [bound] = map(int, sample.latency_buckets)
    assert 2000 <= bound < 2400
    assert sample.p50_us <= sample.p95_us <= sample.p99_us <= bound


def test_sample_of_a_sequence_model_says_how_full_it_is():
    model, sampler = fake_model(), ModelSampler()
    [other] = sampler.sample([model])
    model.slot_usage = SlotUsage(slots=8, active=5, backlog=2)

    [sample] = sampler.sample([model])

    assert (sample.sequence_slots, sample.active_sequences, sample.backlog_sequences) == (8, 5, 2)
    assert (other.sequence_slots, other.active_sequences, other.backlog_sequences) == (0, 0, 0)


def test_idle_model_has_an_empty_sample():
    model, sampler = fake_model(), ModelSampler()
    [sample] = sampler.sample([model])
    assert (sample.success_count, sample.p99_us, sample.batch_sizes) == (0, 0.0, {})


def test_reloaded_model_starts_from_zero():
    sampler = ModelSampler()
    old = fake_model()
    for _ in range(5):
        old.stats.record_success(1000, 0, 0, 0, 0)
    sampler.sample([old])

    new = fake_model()
    new.stats.record_success(1000, 0, 0, 0, 0)
    [sample] = sampler.sample([new])

    assert sample.success_count == 1


def test_figures_of_a_device_that_it_does_not_give_are_zero(monkeypatch):
    full = devices.GpuSample("GPU-1", 0, 0.5, 10, 20, 99.5, 300.0, 7.0, 61)
    bare = devices.GpuSample("GPU-2", 1, None, None, None, None, None, None)
    monkeypatch.setattr(devices, "sample_gpus", lambda: [full, bare])
    known = [devices.GpuDevice(0, "GPU-1", "H200", 20)]
    monkeypatch.setattr(devices, "list_gpus", lambda: known)

    assert device_samples() == [
        DeviceSample(0, "GPU-1", "H200", 0.5, 10, 20, 99.5, 61),
        DeviceSample(1, "GPU-2", "GPU", 0.0, 0, 0),
    ]


def test_backends_are_told_with_what_they_need():
    states = {item.name: item for item in backend_states(BackendRegistry())}

    assert states["identity"].origin == "built in"
    assert states["onnxruntime"].package.startswith("onnxruntime")
    assert states["onnxruntime"].version
    assert not states["onnxruntime"].install


def test_processes_below_this_one_count():
    sampler = ProcessSampler()
    cpu_percent, alone = sampler.sample(1.0)
    assert cpu_percent == 0.0
    script = "data = bytearray(50_000_000); import sys; sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        wait_until_blocking(lambda: psutil.Process(child.pid).memory_info().rss > 50_000_000)
        cpu_percent, together = sampler.sample(0.001)
        assert together > alone + 40_000_000
        assert cpu_percent > 0
    finally:
        child.communicate()
