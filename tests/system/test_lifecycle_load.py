"""Short runs of the lifecycle benchmarks: reloads under traffic, and what load cycles leave."""

from __future__ import annotations

import pytest

from benchmarks import load_cycles, reload_under_load


def test_reloads_under_traffic_fail_no_request_and_mix_up_no_version():
    outcome = reload_under_load.measure(rate=40, reloads=4, startup_s=0.3)

    assert outcome.failures == []
    assert outcome.mix_ups == []
    assert len(outcome.reload_s) == 4
    assert len(outcome.latencies_ms) > 40


@pytest.mark.parametrize(("kind", "cycles"), [("identity", 80), ("onnx", 80), ("python", 8)])
def test_load_cycles_leave_no_thread_descriptor_or_process(kind, cycles):
    result = load_cycles.measure(kind, cycles)

    assert result.leftovers == []
    assert result.growth < 0.05
