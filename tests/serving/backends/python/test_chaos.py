"""Processes that are killed, crash and hang while clients ask: every request ends, and nothing
stays behind. CHAOS_SECONDS sets how long it goes on (15); with CHAOS_FILL_SHM=1 /dev/shm is full
meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import re
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np

from serving.errors import ServingError
from serving.instance.process import ProcessHost
from serving.server import ModelServer
from tests.serving.backends.python.serving_models import (
    ADD_ONE,
    DECOUPLED_POLICY,
    infer_request,
    served,
    source_of,
)

logger = logging.getLogger(__name__)
SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
LIMIT_S = 10.0
"""For any request, with time to wait for a restart on a busy machine."""
HANGS = """
import time
if value_in(requests[0])[0] == -1:
    time.sleep(3600)
return [array_ok(value_in(r) + 1) for r in requests]
"""
COUNTS = """
for r in requests:
    sender = r.get_response_sender()
    for n in range(5):
        sender.send(ok(float(n)))
    sender.send(flags=FINAL)
"""
CALLS = """
answer = call("add", value_in(requests[0])).exec()
if answer.has_error():
    return [pb_utils.InferenceResponse(error=answer.error())]
return [array_ok(value_of(answer) + 1)]
"""
MODELS = {
    "add": (source_of(ADD_ONE), "instance_group [{ kind: KIND_CPU count: 2 }]"),
    "counts": (source_of(COUNTS), DECOUPLED_POLICY),
    "calls": (source_of(CALLS), ""),
    "hangs": (source_of(HANGS), ""),
}
OPTIONS = {
    "backend_config": {
        "python": {
            "execute-timeout-seconds": "1",
            "max-quick-restarts": "100000",
            "max-restart-delay-seconds": "0.3",
        }
    },
    "exit_timeout_secs": 20,
}


def children() -> list[int]:
    """Of this process, zombies too."""
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def rss_kib() -> int:
    match = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1])


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def ask(server: ModelServer, dice: random.Random, told: Counter[str]) -> None:
    """One request; its answer must be right, or an error that says something."""
    name = dice.choice(list(MODELS))
    value = float(dice.randrange(100))
    if name == "hangs" and dice.random() < 0.1:
        value = -1.0
    array = np.full(dice.choice([1, 16, 20_000]), value, np.float32)
    request = infer_request(name, array)
    try:
        async with asyncio.timeout(LIMIT_S):
            response = await server.infer_async(request)
    except ServingError as error:
        told[f"{name} failed" if len(error.message) > 10 else "failed without a word"] += 1
        return
    told[f"{name} answered"] += 1
    expected = {"add": 1, "calls": 2, "hangs": 1}.get(name)
    if expected is not None:
        np.testing.assert_array_equal(response.outputs[0].array, array + expected)


async def client(server: ModelServer, seed: int, end: float, told: Counter[str]) -> None:
    dice = random.Random(seed)
    while asyncio.get_running_loop().time() < end:
        await ask(server, dice, told)
        if dice.random() < 0.05:
            await asyncio.sleep(dice.random() / 10)


async def killer(server: ModelServer, end: float, told: Counter[str]) -> None:
    dice = random.Random(7)
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(dice.uniform(0.1, 0.6))
        hosts = [host for name in MODELS for host in server.model(name).hosts]
        host = dice.choice(hosts)
        assert isinstance(host, ProcessHost)
        if host.pid is not None:
            os.kill(host.pid, dice.choice([signal.SIGKILL, signal.SIGSEGV]))
            told["killed"] += 1


async def filler(end: float) -> None:
    """Keeps /dev/shm full: no tensor may depend on it."""
    path = Path(f"/dev/shm/chaos-{os.getpid()}")
    with path.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage("/dev/shm").free)
            await asyncio.sleep(max(0, end - asyncio.get_running_loop().time()))
        finally:
            path.unlink()


async def test_every_request_ends_and_nothing_stays_behind(tmp_path: Path):
    told: Counter[str] = Counter()
    before, others = descriptors(), set(children())
    shared_memory = set(os.listdir("/dev/shm"))
    mine = {name for name in shared_memory if str(os.getpid()) in name}
    async with served(tmp_path, MODELS, **OPTIONS) as server:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(client(server, n, loop.time() + 1, Counter()) for n in range(8)))
        start_kib = rss_kib()
        counted = {name: _counts(server, name) for name in MODELS}
        end = loop.time() + SECONDS
        work = [client(server, 100 + n, end, told) for n in range(12)]
        work.append(killer(server, end, told))
        if os.environ.get("CHAOS_FILL_SHM") == "1":
            work.append(filler(end))
        await asyncio.gather(*work)
        grown_kib = rss_kib() - start_kib
        for name in ("counts", "calls", "hangs"):
            seen = _counts(server, name) - counted[name]
            assert seen == told[f"{name} answered"] + told[f"{name} failed"], name
            assert server.model(name).inflight_count == 0
    logger.info("%s, RSS grew by %d KiB", dict(sorted(told.items())), grown_kib)

    assert told["killed"] > SECONDS / 4
    assert told["failed without a word"] == 0
    assert all(told[f"{name} answered"] for name in MODELS), told
    assert grown_kib < 60_000
    assert set(children()) <= others
    assert descriptors() <= before + 2
    assert {name for name in os.listdir("/dev/shm") if str(os.getpid()) in name} == mine


def _counts(server: ModelServer, name: str) -> int:
    snapshot = server.model(name).stats.snapshot()
    return snapshot.success.count + sum(snapshot.failures.values())
