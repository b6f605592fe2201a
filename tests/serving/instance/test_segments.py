"""Shared segments that nobody views any more go back, also where no request follows."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np

from serving.instance import segment_keeper
from serving.instance.shared_tensors import MAX_IDLE_SEGMENTS
from tests.serving.instance.python_models import IDENTITY, ask_one, context_for, hosted, output
from tests.waiting import wait_until

MEGABYTE = np.zeros(256 * 1024, np.float32)


def mapped(pid: int | str) -> int:
    """How many segments the process maps."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:tensors")


async def test_what_slow_readers_held_is_given_back_when_they_are_done(tmp_path: Path):
    """Both sides unmap all but a few, although the model gets no further request."""
    gc.collect()  # what other tests have left
    before = mapped("self")
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        answers = [await ask_one(host, MEGABYTE) for _ in range(30)]
        held = mapped("self") - before
        arrays = [output(answer) for answer in answers]
        assert all((array == 0).all() for array in arrays)

        del answers, arrays
        gc.collect()  # what asks is part of a circle
        await wait_until(lambda: mapped("self") - before <= 2 * MAX_IDLE_SEGMENTS)
        await wait_until(lambda: mapped(host.pid or 0) <= 2 * MAX_IDLE_SEGMENTS)
        again = await ask_one(host, MEGABYTE + 1)

    assert held >= 30
    assert (output(again) == 1).all()


async def test_segments_that_lie_idle_are_freed_on_both_sides(tmp_path: Path, monkeypatch):
    """What a burst of big tensors took does not stay for ever."""
    monkeypatch.setattr(segment_keeper, "TEND_S", 0.05)
    monkeypatch.setattr(segment_keeper, "TRIM_AFTER", 4)
    gc.collect()  # what other tests have left
    before = mapped("self")
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        assert (output(await ask_one(host, MEGABYTE)) == 0).all()
        assert mapped("self") > before
        gc.collect()

        await wait_until(lambda: mapped("self") <= before)
        await wait_until(lambda: mapped(host.pid or 0) == 0)
        again = await ask_one(host, MEGABYTE + 1)

    assert (output(again) == 1).all()
