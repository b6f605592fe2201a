"""A host that executes when the test says so, for schedulers on a FakeClock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from serving.datatypes import BY_NAME
from serving.errors import BackendError
from serving.instance.base import Batch
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse
from serving.scheduling.custom_batching import BatchStrategy
from serving.scheduling.dynamic_batcher import DynamicBatcher
from tests.fakes import FakeClock
from tests.serving.loading import spec_of


class ManualHost:
    def __init__(self, name: str = "m_0_0") -> None:
        self.name = name
        self.on_state_change: Callable[[], None] | None = None
        self.is_ready = True
        self.has_failed = False
        self.unready_reason = ""
        self.burst_limit = 1
        self.goes_ahead = False
        """Set by tests: one more batch may wait behind the one that runs."""
        self.waiting: Batch | None = None
        self.running: Batch | None = None
        self.done: Callable[[Batch], None] | None = None
        self.executed: list[Batch] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def takes_ahead(self) -> bool:
        return self.goes_ahead and self.running is not None and self.waiting is None

    def execute(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        self.done = done
        if self.takes_ahead:
            self.waiting = batch
            return
        assert self.running is None, "one batch at a time"
        self.running = batch
        self.executed.append(batch)

    def finish(self) -> None:
        """The running batch is over; answers after that."""
        batch, done = self.running, self.done
        assert batch is not None
        assert done is not None
        self.running, self.waiting = self.waiting, None
        if self.running is not None:
            self.executed.append(self.running)
        done(batch)
        for request in batch.requests:
            if request.deliver is not None:
                request.deliver(request, InferenceResponse("m", 1, request.id))

    def die(self) -> None:
        """What runs fails; what waits behind it is given back."""
        self.is_ready = False
        running, waiting, self.running, self.waiting = self.running, self.waiting, None, None
        assert self.done is not None
        if waiting is not None:
            waiting.is_returned = True
            self.done(waiting)
        assert running is not None
        self.done(running)
        for request in running.requests:
            if request.deliver is not None:
                request.deliver(request, request.error_response(BackendError("died")))

    def come_back(self) -> None:
        self.is_ready = True
        assert self.on_state_change is not None
        self.on_state_change()

    def fail_for_good(self, reason: str) -> None:
        self.is_ready, self.has_failed, self.unready_reason = False, True, reason
        assert self.on_state_change is not None
        self.on_state_change()


class Batching:
    """A dynamic batcher with everything around it under the test's control."""

    def __init__(
        self,
        scheduling: str = "",
        *,
        inputs: str = "",
        max_batch_size: int = 8,
        hosts: int = 1,
        hold_until: int = 0,
        strategy: BatchStrategy | None = None,
        on_executed: Callable[[Batch], None] | None = None,
    ) -> None:
        inputs = inputs or 'input { name: "IN" data_type: TYPE_FP32 dims: [-1] }'
        spec = spec_of(
            f'name: "m" max_batch_size: {max_batch_size} {inputs} '
            f"dynamic_batching {{ {scheduling} }}"
        )
        self.clock = FakeClock()
        self.hosts = [ManualHost(f"m_0_{number}") for number in range(hosts)]
        self.host = self.hosts[0]
        self.pool = InstancePool(self.hosts)
        for host in self.hosts:
            host.on_state_change = lambda: self.pool.on_idle and self.pool.on_idle()
        self.batcher = DynamicBatcher(
            spec,
            self.pool,
            self.clock,
            hold_until=hold_until,
            strategy=strategy,
            on_executed=on_executed,
        )
        self.answers: list[tuple[str, str]] = []
        """(request id, "ok" or the error's text) in order of delivery."""

    def send(
        self,
        *ids: str,
        rows: int = 1,
        columns: int = 2,
        names: tuple[str, ...] = ("IN",),
        extra: Mapping[str, InputTensor] | None = None,
        **fields: int,
    ) -> InferenceRequest:
        """Enqueue one request for each id, in one turn of the loop; the last one is returned."""
        for name in ids:
            array = np.zeros((rows, columns), np.float32)
            request = InferenceRequest("m", 1, name, batch_size=rows, **fields)
            for item in names:
                request.inputs[item] = InputTensor(item, BY_NAME["FP32"], array.shape, array)
            request.inputs.update(extra or {})
            request.deliver = self._deliver
            self.batcher.enqueue(request)
        return request

    def keep_busy(self) -> None:
        """The only instance executes until the test calls `host.finish()`."""
        self.send("busy")
        self.turn()

    def turn(self) -> None:
        """One turn of the event loop."""
        self.clock.advance_us(0)

    def batches(self) -> list[str]:
        """Each executed batch as "ids: reason", over all hosts."""
        return [
            f"{' '.join(request.id for request in batch.requests)}: {batch.reason}"
            for host in self.hosts
            for batch in host.executed
        ]

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        error = response.error
        self.answers.append((request.id, error.message if error else "ok"))
        request.deliver = None
