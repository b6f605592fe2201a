"""The scheduler of ensembles: it has no instance and no batch, it calls the models of its steps.

Requests never wait here but for `max_inflight_requests`; the parts have their own queues, where
concurrent ensemble requests are batched. Loop thread only. Behaviour after spec SCH-080..094.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from serving.backends.base import ExecutionTimes
from serving.clock import Clock, TimerHandle
from serving.config.decode import ModelSpec
from serving.errors import QueueRejectedError, ServingError
from serving.instance.base import Batch
from serving.request import InferenceRequest, request_tag
from serving.scheduling.ensemble_parts import Binding, Parts
from serving.scheduling.ensemble_plan import EnsemblePlan
from serving.scheduling.ensemble_run import EnsembleRun, StepCall
from serving.services import ModelCalls, ServedModel

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 300
"""A step that waited this long for its turn runs in spite of the limit (SCH-084)."""


class EnsembleScheduler:
    def __init__(
        self,
        spec: ModelSpec,
        calls: ModelCalls,
        clock: Clock,
        *,
        on_executed: Callable[[Batch], None] | None = None,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.plan = EnsemblePlan(spec)
        self._parts = Parts(spec, self.plan, calls)
        self._on_executed = on_executed
        self._runs: dict[InferenceRequest, EnsembleRun] = {}
        self._turns: list[_Turns] = []
        """By step; empty where there is no limit."""
        if spec.ensemble.max_inflight_requests:
            limit = spec.ensemble.max_inflight_requests
            self._turns = [_Turns(limit, clock, f"{step}") for step in self.plan.steps]
        self._is_stopping = False
        self._stopped: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        stopping = " stopping" if self._is_stopping else ""
        return (
            f"<EnsembleScheduler {self.spec.name} running={len(self._runs)} "
            f"waiting={self.queued_count}{stopping}>"
        )

    @property
    def queued_count(self) -> int:
        """Steps that wait for their turn."""
        return sum(len(turns) for turns in self._turns)

    @property
    def inflight_count(self) -> int:
        return len(self._runs)

    @property
    def unready_reason(self) -> str:
        return self._parts.unready_reason

    def hooked_parts(self) -> list[ServedModel]:
        """Parts that have a say in whether they are ready."""
        return [model for model in self._parts.serving() if model.has_ready_hook]

    def labels_of(self, output: str) -> list[str]:
        """Inherited of the model that makes the output (SCH-094)."""
        return self._parts.labels_of(output)

    def bind(self, request: InferenceRequest) -> Binding:
        """The models for a request that starts now. Raises UnavailableError."""
        return self._parts.bind(request)

    def awaits(
        self, request: InferenceRequest | None
    ) -> list[tuple[ServedModel, InferenceRequest | None]]:
        """What the request still waits for: parts with what they have been asked, or with None
        where they will be. For None: all parts.
        """
        if request is None:
            return [(model, None) for model in self._parts.serving()]
        run = self._runs.get(request)
        return [] if run is None else run.awaits()

    def enqueue(self, request: InferenceRequest) -> None:
        if self._is_stopping:
            raise QueueRejectedError(
                f"Server is stopping, or model '{self.spec.name}' is being unloaded: it takes no "
                "new requests; send the request again later or to another server"
            )
        binding = request.pinned or self._parts.bind(request)
        request.times.queue_start_ns = self.clock.now_ns()
        run = EnsembleRun(self, request, self.plan.flow(request.output_names), binding)
        binding.take()
        self._runs[request] = run
        request.on_cancel = lambda _: run.cancel()
        run.begin()

    async def stop(self) -> None:
        self._is_stopping = True
        if self._runs:
            self._stopped = asyncio.get_running_loop().create_future()
            await self._stopped

    def abandon(self, error: ServingError) -> None:
        self._is_stopping = True
        for run in list(self._runs.values()):
            run.cancel(error)
        self._tell_stopped()

    # For the runs

    def submit(self, call: StepCall) -> None:
        """Start the step now, or when it is its turn."""
        if self._turns:
            self._turns[call.step].submit(call)
        else:
            call.run.start(call)

    def finished(self, call: StepCall) -> None:
        if self._turns:
            self._turns[call.step].finished()

    def drop(self, call: StepCall) -> None:
        """It was cancelled before its turn came."""
        self._turns[call.step].drop(call)

    def record(self, request: InferenceRequest, sums_ns: list[int]) -> None:
        """Stamp the request so that its stages are the sums over all steps, as Triton's are."""
        times = request.times
        queue_ns, input_ns, infer_ns, output_ns = sums_ns
        start_ns = times.compute_start_ns = times.queue_start_ns + queue_ns
        input_end_ns = times.compute_input_end_ns = start_ns + input_ns
        output_start_ns = times.compute_output_start_ns = input_end_ns + infer_ns
        end_ns = times.compute_end_ns = output_start_ns + output_ns
        if self._on_executed is not None:
            stages = ExecutionTimes(start_ns, input_end_ns, output_start_ns, end_ns)
            self._on_executed(Batch([request], request.batch_size, "", stages))

    def ended(self, run: EnsembleRun) -> None:
        self._runs.pop(run.request, None)
        run.request.on_cancel = None
        run.binding.give_back()
        if self._is_stopping and not self._runs:
            self._tell_stopped()

    def _tell_stopped(self) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)


class _Turns:
    """How many requests one step may have at its model at once, over all ensemble requests."""

    def __init__(self, limit: int, clock: Clock, step: str) -> None:
        self._limit = limit
        self._clock = clock
        self._step = step
        self._running = 0
        self._is_pumping = False
        self._waiting: dict[StepCall, None] = {}
        self._due: deque[tuple[int, StepCall]] = deque()
        """When each must run at the latest, those included that have left already."""
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, call: StepCall) -> None:
        if self._running < self._limit:
            self._start(call)
            return
        self._waiting[call] = None
        self._due.append((self._clock.now_ns() + LONGEST_WAIT_S * 1_000_000_000, call))
        self._arm()

    def finished(self) -> None:
        self._running -= 1
        if self._is_pumping:
            return  # a step that ended at once, while it was started below
        self._is_pumping = True
        try:
            while self._waiting and self._running < self._limit:
                self._start(self._pop())
        finally:
            self._is_pumping = False

    def drop(self, call: StepCall) -> None:
        self._waiting.pop(call, None)
        self._arm()

    def _start(self, call: StepCall) -> None:
        self._running += 1
        call.run.start(call)

    def _pop(self) -> StepCall:
        call = next(iter(self._waiting))
        del self._waiting[call]
        self._arm()
        return call

    def _arm(self) -> None:
        """One timer, for the one that waits for longest."""
        while self._due and self._due[0][1] not in self._waiting:
            self._due.popleft()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer = self._clock.call_at(self._due[0][0], self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        call = self._pop()
        logger.error(
            "%s %s has waited for %d s because max_inflight_requests is %d: it runs in spite of "
            "that ensemble=%s",
            request_tag(call.run.request.id),
            self._step,
            LONGEST_WAIT_S,
            self._limit,
            call.run.request.model_name,
        )
        self._start(call)
