"""Instances that cannot execute again, in a process of their own (PT-28). Those in threads are in
the tests of the backend pytorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from serving.errors import FailureReason
from tests.fakes import FakeClock
from tests.serving.instance.lost_backend import NAME
from tests.serving.instance.python_models import CONFIG, ask_one, context_for, hosted, output
from tests.waiting import wait_until


async def test_a_lost_instance_starts_anew_in_another_process(tmp_path: Path):
    """PT-28: the request hears why, the process ends, and the next one answers."""
    clock = FakeClock()
    context = context_for(tmp_path, None, CONFIG.replace('"python"', '"lost"'))
    async with hosted(context, NAME, clock=clock) as host:
        first = output(await ask_one(host, np.zeros(1, np.float32)))

        failed = await ask_one(host, np.ones(1, np.float32))
        await wait_until(lambda: not host.is_ready)
        reason = host.unready_reason
        clock.advance_us(60_000_000)
        await wait_until(lambda: host.is_ready)
        second = output(await ask_one(host, np.zeros(1, np.float32)))

    assert failed.error is not None
    assert "illegal memory access" in failed.error.message
    assert failed.error.failure_reason is FailureReason.BACKEND
    assert "is restarting" in reason
    assert "illegal memory access" in reason
    assert first.item() != second.item()  # process numbers
