"""Thousands of requests at once, on every scheduler and both hosts: each gets its own answer, once.

Batches of 1 to 8 rows (one, of a sequence), numbers, texts and ragged tensors, some cancelled, some
with a timeout. FUZZ_REQUESTS makes it larger, FUZZ_SEED makes it another one.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from serving.errors import FailureReason, InvalidArgumentError
from serving.options import ServerOptions
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.server import ModelServer
from tests.serving.loading import request_of
from tests.serving.scheduling.fuzz_models import HOSTS, KINDS, SCHEDULERS, write

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "5000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
_PATIENCE_S = 120.0
_CANCELLED = 0.05
_WITH_TIMEOUT = 0.05


class Caller:
    """One request, and everything that came back for it."""

    def __init__(self, number: int, chance: random.Random, doublings: int) -> None:
        self.kind = chance.choice(KINDS)
        self.factor = 2**doublings
        self.answers: list[InferenceResponse] = []
        shape = (chance.randint(1, 8), chance.choice((1, 3, 3, 3)))
        values = (np.arange(shape[0] * shape[1]) + number * 100).reshape(shape)
        self.sent: np.ndarray = values.astype(np.float32)
        if self.kind == "BYTES":
            self.sent = np.array([b"%d" % x for x in values.ravel()], np.object_).reshape(shape)
        self.request: InferenceRequest = request_of({"X": self.sent}, model=self.kind)
        self.request.id = str(number)
        self.request.on_response = self.answers.append
        if chance.random() < _WITH_TIMEOUT:
            self.request.timeout_us = chance.choice((1, 500, 50_000))

    def make_step(self, key: int, *, is_first: bool, is_last: bool) -> None:
        """A request of a sequence: one row."""
        self.sent = self.sent[:1]
        one = request_of({"X": self.sent}, model=self.kind).inputs
        self.request.inputs = one
        self.request.correlation_id = key
        self.request.sequence_start, self.request.sequence_end = is_first, is_last
        if not is_first:  # a timeout takes the whole sequence with it
            self.request.timeout_us = 0

    def outcome(self) -> str:
        [answer] = self.answers
        assert answer.is_final
        assert answer.id == self.request.id
        if answer.error is None:
            wanted = self.sent if self.kind == "BYTES" else self.sent * self.factor
            [output] = answer.outputs
            np.testing.assert_array_equal(output.array, wanted)
            assert output.shape == self.sent.shape
            return "ok"
        if isinstance(answer.error, InvalidArgumentError):
            # What came after a cancelled request of the sequence.
            assert "START" in answer.error.message
            assert self.request.correlation_id
            return "no sequence"
        reason = answer.error.failure_reason
        if reason is FailureReason.OTHER:  # of an ensemble, whose part refused it
            assert "Request timeout expired" in answer.error.message
        return reason.name


def callers_of(scheduler: str, chance: random.Random) -> list[Caller]:
    doublings = 2 if scheduler == "ensemble" else 1
    callers = [Caller(number, chance, doublings) for number in range(REQUESTS)]
    if scheduler in ("direct", "oldest"):
        for kind in KINDS:
            _into_sequences([item for item in callers if item.kind == kind], chance)
    return callers


def _into_sequences(callers: list[Caller], chance: random.Random) -> None:
    """Dozens of sequences at a time, their requests in any order among each other."""
    left: dict[int, int] = {}
    key = 0
    for caller in callers:
        is_first = len(left) < 50 and chance.random() < 0.5 or not left
        if is_first:
            key += 1
            left[key] = chance.randint(1, 12)
        chosen = key if is_first else chance.choice(list(left))
        left[chosen] -= 1
        caller.make_step(chosen, is_first=is_first, is_last=not left[chosen])
        if not left[chosen]:
            del left[chosen]
    for caller in reversed(callers):  # no sequence is left open
        if left.pop(int(caller.request.correlation_id), None) is not None:
            caller.request.sequence_end = True


async def send_all(server: ModelServer, callers: list[Caller], chance: random.Random) -> None:
    for number, caller in enumerate(callers):
        server.infer(caller.request)
        if chance.random() < _CANCELLED:
            callers[chance.randint(max(0, number - 200), number)].request.cancel()
        if chance.random() < 0.01:
            await asyncio.sleep(0)
    async with asyncio.timeout(_PATIENCE_S):
        while not all(caller.answers for caller in callers):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
async def test_every_request_gets_its_own_answer_once(tmp_path: Path, scheduler: str, host: str):
    """SCH-020, SCH-030, SCH-054, SCH-056, SCH-081, under load."""
    write(tmp_path, scheduler, host)
    server = ModelServer(ServerOptions((tmp_path,)))
    await server.start()
    try:
        chance = random.Random(f"{SEED} {scheduler} {host}")
        callers = callers_of(scheduler, chance)
        await send_all(server, callers, chance)
        outcomes = Counter(caller.outcome() for caller in callers)
        await _check_counters(server, outcomes)
    finally:
        await server.stop()


async def _check_counters(server: ModelServer, outcomes: Counter[str]) -> None:
    assert outcomes["ok"] > REQUESTS // 3, outcomes
    assert outcomes.keys() <= {"ok", "CANCELED", "REJECTED", "OTHER", "no sequence"}, outcomes
    names = {row.name for row in server.repository_index()}
    models = [server.model(name) for name in sorted(names)]
    for model in models:  # cancelled steps of ensembles may still run
        async with asyncio.timeout(_PATIENCE_S):
            while model.inflight_count:
                await asyncio.sleep(0.01)
        assert (model.queued_count, model.inflight_count) == (0, 0)
    snapshots = [model.stats.snapshot() for model in models if model.name in KINDS]
    assert sum(item.success.count for item in snapshots) == outcomes["ok"]
    for reason in (FailureReason.CANCELED, FailureReason.REJECTED, FailureReason.OTHER):
        told = sum(item.failures[reason] for item in snapshots)
        assert told == outcomes[reason.name], reason
