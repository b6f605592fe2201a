"""Random graphs, answered in random order, with errors and cancellations: every request gets the
values that the graph means, or one error, and nothing stays behind. Spec SCH-081, 082, 084, 085.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import BackendError, CancelledError
from tests.serving.scheduling.ensemble_bench import Bench, Part, Sent, array, step, tensors

_PARTS = "abc"


@dataclass
class Graph:
    """Step i reads two earlier tensors, x and y, and gives t{i} = x + 2y + 1."""

    reads: list[tuple[int, int]]
    """By step: the tensors that feed X and Y; 0 is the input of the request, i the t of step i."""
    outputs: list[int]

    def bench(self, limit: int) -> Bench:
        used = {tensor for pair in self.reads for tensor in pair} | set(self.outputs)
        steps = []
        for index, (x, y) in enumerate(self.reads, start=1):
            gives = {"P": f"t{index}"} if index in used else {"P": f"unused{index}"}
            steps.append(
                step(_PARTS[index % 3], {"X": _name(x), "Y": _name(y)}, gives),
            )
        return Bench(
            *steps,
            f"max_inflight_requests: {limit}",
            outputs=tensors("output", *(f"t{index}" for index in self.outputs)),
        )

    def value(self, tensor: int, given_value: float) -> float:
        if tensor == 0:
            return given_value
        x, y = (self.value(item, given_value) for item in self.reads[tensor - 1])
        return x + 2 * y + 1

    def needed(self, outputs: list[int]) -> int:
        """How many steps these outputs take."""
        found: set[int] = set()
        waiting = list(outputs)
        while waiting:
            tensor = waiting.pop()
            if tensor and tensor not in found:
                found.add(tensor)
                waiting += self.reads[tensor - 1]
        return len(found)


def _name(tensor: int) -> str:
    return f"t{tensor}" if tensor else "A"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 7))
    reads = [(draw(st.integers(0, index)), draw(st.integers(0, index))) for index in range(count)]
    outputs = draw(st.sets(st.integers(1, count), min_size=1))
    return Graph(reads, sorted(outputs))


def answer_one(bench: Bench, chance: random.Random, error_share: float) -> bool:
    """Let one of the waiting requests of the parts be answered; False when none waits."""
    waiting: list[tuple[Part, int]] = [
        (part, index) for part in bench.parts.values() for index in range(len(part.requests))
    ]
    if not waiting:
        return False
    part, index = chance.choice(waiting)
    request = part.requests[index]
    if request.is_cancelled and chance.random() < 0.5:
        part.answer(error=CancelledError("stopped"), index=index)
    elif chance.random() < error_share:
        part.answer(error=BackendError("boom"), index=index)
    else:
        x, y = (float(request.inputs[name].array[0]) for name in ("X", "Y"))
        part.answer({"P": array(x + 2 * y + 1)}, index=index)
    return True


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 2), st.integers(0, 2**32), st.sampled_from([0.0, 0.1]))
def test_every_request_gets_its_own_values_or_one_error(graph, limit, seed, error_share):
    chance = random.Random(seed)
    bench = graph.bench(limit)
    sent: list[tuple[Sent, float, list[int]]] = []
    for number in range(6):
        wanted = chance.sample(graph.outputs, chance.randint(1, len(graph.outputs)))
        names = tuple(_name(item) for item in wanted)
        sent.append((bench.send({"A": array(number)}, outputs=names), number, wanted))
        for _ in range(chance.randint(0, 3)):
            answer_one(bench, chance, error_share)
        if chance.random() < 0.2:
            chance.choice(sent)[0].request.cancel()
    while answer_one(bench, chance, error_share):
        pass

    steps = 0
    for item, number, wanted in sent:
        assert [response.is_final for response in item.responses] == [True]
        if item.error is None:
            steps += graph.needed(wanted)
            expected = {_name(tensor): np.float32(graph.value(tensor, number)) for tensor in wanted}
            assert {name: np.float32(value[0]) for name, value in item.outputs.items()} == expected
        else:
            assert item.error.message.startswith(("in ensemble 'e', step", "the request to"))
    if all(item.error is None for item, _, _ in sent):
        assert sum(part.count for part in bench.parts.values()) == steps
    assert (bench.scheduler.inflight_count, bench.scheduler.queued_count) == (0, 0)
    assert {part.leases.count for part in bench.parts.values()} == {0}
