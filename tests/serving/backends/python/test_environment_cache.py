"""Environments are made once, stay while somebody uses them, and go when nobody has for long."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest

from serving.backends.python.environment_cache import EnvironmentCache, Lease

DAY_S = 86_400


def write(target: Path) -> None:
    target.mkdir()
    (target / "python").write_text("made")


def told() -> None:
    """Nobody waits here."""


def grow_old(target: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(target / ".conch-ready", (then, then))


def take(cache: EnvironmentCache, key: str) -> tuple[Path, Lease]:
    return cache.get(key, write, told)


def test_one_key_is_made_once_and_told_once(tmp_path: Path):
    cache, made, waits = EnvironmentCache(tmp_path / "c", 30), [], []

    for _ in range(2):
        cache.get("a", lambda target: (made.append(1), write(target)), lambda: waits.append(1))

    assert (len(made), len(waits)) == (1, 1)


def test_several_threads_that_want_one_make_it_once(tmp_path: Path):
    cache, made, found = EnvironmentCache(tmp_path, 30), [], []

    def fill(target: Path) -> None:
        made.append(1)
        while len(waiting) < 8:  # until all have seen that it is not there yet
            time.sleep(0.001)
        write(target)

    waiting: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(cache.get("a", fill, lambda: waiting.append(1))),
            daemon=True,
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    # All of them hold it now, and none waits for another to let go.
    assert (len(made), len(found)) == (1, 8)
    assert len({path for path, _ in found}) == 1


def test_what_was_left_unfinished_is_made_anew(tmp_path: Path):
    cache = EnvironmentCache(tmp_path, 30)

    def break_off(target: Path) -> None:
        write(target)
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        cache.get("a", break_off, told)
    path, _ = take(cache, "a")

    assert (path / "python").read_text() == "made"


def test_one_that_nobody_has_used_for_long_goes_when_another_is_made(tmp_path: Path):
    cache = EnvironmentCache(tmp_path, 30)
    old, young = (take(cache, key)[0] for key in ("old", "young"))
    gc.collect()
    grow_old(old, 31)
    grow_old(young, 29)

    take(cache, "new")

    assert not old.exists()
    assert young.exists()


def test_one_that_is_in_use_stays_however_old_it_is(tmp_path: Path):
    cache = EnvironmentCache(tmp_path, 30)
    path, lease = take(cache, "old")
    grow_old(path, 400)

    take(cache, "new")
    assert path.exists()

    del lease
    gc.collect()
    take(cache, "newer")
    assert not path.exists()


def test_taking_one_makes_it_young_again(tmp_path: Path):
    cache = EnvironmentCache(tmp_path, 30)
    path, _ = take(cache, "a")
    grow_old(path, 31)

    take(cache, "a")
    gc.collect()
    take(cache, "new")

    assert path.exists()
