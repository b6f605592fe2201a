"""Whatever clients and instances do: every request is answered once, and a sequence in order.

Random histories of sends, cancellations, timeouts, idleness, slow answers and dying instances.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from serving.errors import ServingError
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from tests.serving.scheduling.sequence.sequencing import Sequencing

STRATEGIES = (
    "direct { }",
    "direct { minimum_slot_utilization: 0.7 max_queue_delay_microseconds: 300 }",
    "oldest { max_candidate_sequences: 3 }",
    "oldest { max_candidate_sequences: 5 preferred_batch_size: [2] "
    "max_queue_delay_microseconds: 200 preserve_ordering: true }",
)
IDLE_US = 5_000


class History:
    def __init__(self, seed: int, strategy: str) -> None:
        self.random = random.Random(seed)
        self.sequencing = Sequencing(
            f"{strategy} max_sequence_idle_microseconds: {IDLE_US}",
            max_batch_size=self.random.choice((0, 1, 4)),
            hosts=self.random.randrange(1, 4),
        )
        self.sent: dict[int, list[InferenceRequest]] = defaultdict(list)
        self.finals: Counter[InferenceRequest] = Counter()
        self.ran: dict[int, list[InferenceRequest]] = defaultdict(list)
        self.late: list[InferenceRequest] = []
        """Executed, not answered: as of a decoupled model."""

    def step(self) -> None:
        actions = (self.send, self.send, self.send, self.finish, self.finish, self.cancel)
        self.random.choice((*actions, self.answer_late, self.wait, self.crash))()

    def send(self) -> None:
        key = self.random.randrange(1, 12)
        name = f"{key}.{len(self.sent[key])}"
        request = self.sequencing.request(
            name,
            columns=self.random.choice((2, 2, 2, 3)),
            correlation_id=key,
            sequence_start=self.random.random() < 0.3,
            sequence_end=self.random.random() < 0.2,
            timeout_us=self.random.choice((0, 0, 0, 400)),
        )
        request.deliver = self.deliver
        try:
            self.sequencing.batcher.enqueue(request)
        except ServingError:
            return
        self.sent[key].append(request)

    def deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        if response.is_final:
            self.finals[request] += 1
            request.deliver = None

    def finish(self) -> None:
        busy = [host for host in self.sequencing.hosts if host.running]
        if not busy:
            return
        host = self.random.choice(busy)
        batch, done = host.running, host.done
        assert batch is not None
        assert done is not None
        host.running = None
        rows = [request for request in batch.requests if request.id]
        assert len({request.correlation_id for request in rows}) == len(rows), "one of a sequence"
        for request in rows:
            self.ran[int(request.correlation_id)].append(request)
        early = [request for request in rows if self.random.random() < 0.1]
        for request in early:
            self.answer(request)
        done(batch)
        for request in rows:
            if request not in early and self.random.random() < 0.2:
                self.late.append(request)
            elif request not in early:
                self.answer(request)
        self.sequencing.turn()

    def answer(self, request: InferenceRequest) -> None:
        assert request.deliver is not None
        request.deliver(request, InferenceResponse("m", 1, request.id))

    def answer_late(self) -> None:
        while self.late:
            self.answer(self.late.pop())
        self.sequencing.turn()

    def cancel(self) -> None:
        requests = self.sent[self.random.randrange(1, 12)]
        if requests:
            self.random.choice(requests).cancel()

    def wait(self) -> None:
        self.sequencing.clock.advance_us(self.random.choice((0, 50, 250, 1000, IDLE_US)))

    def crash(self) -> None:
        if self.random.random() < 0.8:
            return
        host = self.random.choice(self.sequencing.hosts)
        if host.running:
            return  # its batch is failed first, which `finish` does
        for is_ready in (False, True):
            host.is_ready = is_ready
            assert host.on_state_change is not None
            host.on_state_change()

    def settle(self) -> None:
        for _ in range(2000):
            self.answer_late()
            if any(host.running for host in self.sequencing.hosts):
                self.finish()
            elif self.sequencing.batcher.inflight_count:
                self.sequencing.clock.advance_us(300)
            else:
                break
        self.answer_late()
        self.sequencing.clock.advance_us(2 * IDLE_US)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(25))
def test_every_request_is_answered_once_and_a_sequence_runs_in_order(strategy: str, seed: int):
    history = History(seed, strategy)
    for _ in range(400):
        history.step()

    history.settle()

    batcher = history.sequencing.batcher
    everything = [request for requests in history.sent.values() for request in requests]
    assert [history.finals[request] for request in everything] == [1] * len(everything)
    assert len(everything) > 20
    for key, ran in history.ran.items():
        sent = history.sent[key]
        places = [sent.index(request) for request in ran]
        assert len(set(places)) == len(places)
        assert places == sorted(places)
    assert (batcher.queued_count, batcher.inflight_count) == (0, 0)
    assert (batcher.slot_usage.active, batcher.slot_usage.backlog) == (0, 0)
    assert not any(lane.ready for lane in batcher._lanes)
    assert not batcher._sequence_of
    assert repr(batcher._book) == "<Book open=0 ending=0 following=0>"
