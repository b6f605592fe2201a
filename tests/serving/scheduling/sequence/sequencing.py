"""A sequence batcher with everything around it under the test's control."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import ServingError
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse
from serving.scheduling.sequence.scheduler import SequenceBatcher
from tests.fakes import FakeClock
from tests.serving.loading import spec_of
from tests.serving.scheduling.hosts import ManualHost

IDLE = "max_sequence_idle_microseconds: 2000000"
both = pytest.mark.parametrize(
    "batching", ["direct { }", "oldest { max_candidate_sequences: 4 }"], ids=["direct", "oldest"]
)
"""For rules that both strategies keep."""
INPUT = 'input { name: "IN" data_type: TYPE_FP32 dims: [-1] }'


class Sequencing:
    def __init__(
        self,
        batching: str = "direct { }",
        *,
        max_batch_size: int = 4,
        hosts: int = 1,
        inputs: str = INPUT,
        **options: Any,
    ) -> None:
        spec = spec_of(
            f'name: "m" max_batch_size: {max_batch_size} {inputs} '
            f"sequence_batching {{ {batching} }}"
        )
        self.clock = FakeClock()
        self.hosts = [ManualHost(f"m_0_{number}") for number in range(hosts)]
        self.host = self.hosts[0]
        self.pool = InstancePool(self.hosts)
        for host in self.hosts:
            host.on_state_change = self._on_state_change
        self.batcher = SequenceBatcher(spec, self.pool, self.clock, **options)
        self.has_batch_axis = max_batch_size > 0
        self.answers: list[tuple[str, str]] = []
        """(request id, "ok" or the error's text) in order of delivery."""

    def send(self, *names: str, **fields: Any) -> InferenceRequest:
        """Enqueue requests in one turn of the loop, named like "7.2": the second of sequence 7.

        One that ends on 1 starts its sequence, a "!" behind the name ends it. The last is returned.
        """
        for name in names:
            text, _, number = name.rstrip("!").partition(".")
            sequence = int(text) if text.isdigit() else text
            request = self.request(
                name.rstrip("!"),
                **{
                    "correlation_id": sequence,
                    "sequence_start": number == "1",
                    "sequence_end": name.endswith("!"),
                    **fields,
                },
            )
            self.batcher.enqueue(request)
        return request

    def request(self, name: str, *, columns: int = 2, **fields: Any) -> InferenceRequest:
        rows = fields.get("batch_size", 1)
        array = np.ones((rows, columns) if self.has_batch_axis else (columns,), np.float32)
        request = InferenceRequest("m", 1, name, **fields)
        request.inputs["IN"] = InputTensor("IN", BY_NAME["FP32"], array.shape, array)
        request.deliver = self._deliver
        return request

    def refusal(self, name: str, **fields: Any) -> ServingError:
        """The error that `send` raises."""
        try:
            self.send(name, **fields)
        except ServingError as error:
            return error
        raise AssertionError(f"{name} was taken")

    def turn(self) -> None:
        """One turn of the event loop."""
        self.clock.advance_us(0)

    def finish(self, number: int = 0) -> None:
        """The running batch of a host is over, its answers delivered; then a turn of the loop."""
        self.hosts[number].finish()
        self.turn()

    def run(self, *names: str, **fields: Any) -> None:
        """Send, and let everything that waits execute."""
        if names:
            self.send(*names, **fields)
        self.turn()
        while any(host.running for host in self.hosts):
            for number, host in enumerate(self.hosts):
                if host.running:
                    self.finish(number)

    def batches(self, number: int = 0) -> list[str]:
        """Each batch that the host executed as "row row: reason"; "-" is a filler."""
        return [
            f"{' '.join(request.id or '-' for request in batch.requests)}: {batch.reason}"
            for batch in self.hosts[number].executed
        ]

    def rows(self) -> list[str]:
        """Like `batches` of the first host, without the reasons."""
        return [text.partition(":")[0] for text in self.batches()]

    def _on_state_change(self) -> None:
        assert self.pool.on_idle is not None
        self.pool.on_idle()

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        error = response.error
        if response.is_final:
            self.answers.append((request.id, error.message if error else "ok"))
            request.deliver = None
