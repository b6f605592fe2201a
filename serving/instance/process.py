"""Hosts a model instance in a child process: what runs there, restarts, readiness.

A process that dies fails what it was executing at once, and is started again with growing delays
until it is clear that it will not live. Loop thread only; time comes from the clock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable

from serving.backends.base import ModelContext, Placement
from serving.backends.registry import BUILT_IN
from serving.clock import TimerHandle
from serving.errors import BackendError, InternalError, ServingError, UnavailableError
from serving.instance import wire
from serving.instance.base import Batch, deliver, finish
from serving.instance.call_desk import OpenCall
from serving.instance.codec import error_from, response_from
from serving.instance.link import InstanceLink
from serving.instance.restart import RestartCounter, RestartPolicy
from serving.instance.shared_tensors import TensorUnpacker
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices

logger = logging.getLogger(__name__)


class _State(enum.Enum):
    NEW = "new"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


class ProcessHost:
    """One instance, one process at a time."""

    def __init__(
        self,
        context: ModelContext,
        backend_name: str,
        placement: Placement,
        *,
        services: ModelServices,
        start_timeout_s: float = 600.0,
        finalize_timeout_s: float = 30.0,
        restart: RestartPolicy | None = None,
    ) -> None:
        """`backend_name` is a registered name, or `module:Class`."""
        self.name = placement.instance_name
        self.on_state_change: Callable[[], None] | None = None
        self._context = context
        self._load = _load_message(context, backend_name, placement)
        self._cpu_cores = placement.cpu_cores
        self._services = services
        self._clock = services.clock
        self._start_timeout_s = start_timeout_s
        self._finalize_timeout_s = finalize_timeout_s
        self._restarts = RestartCounter(restart or RestartPolicy())
        self._state = _State.NEW
        self._reason = f"instance '{self.name}' has not been started"
        self._link: InstanceLink | None = None
        self._batch: Batch | None = None
        self._done: Callable[[Batch], None] | None = None
        self._batch_number = 0
        self._next_number = 0
        self._ready_ns = 0
        self._running: dict[int, InferenceRequest] = {}
        """Requests without a final response, by their number on the wire."""
        self._timer: TimerHandle | None = None
        self._restart_task: asyncio.Task[None] | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<ProcessHost {self.name} {self._state.value} running={len(self._running)}>"

    @property
    def is_ready(self) -> bool:
        return self._state is _State.READY

    @property
    def unready_reason(self) -> str:
        return "" if self._state is _State.READY else self._reason

    @property
    def has_failed(self) -> bool:
        """It will not come back by itself."""
        return self._state in (_State.FAILED, _State.STOPPED)

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return None if self._link is None else self._link.pid

    async def start(self) -> None:
        await self._start_link()
        self._set_state(_State.READY, "")

    def execute(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        now_ns = time.monotonic_ns()
        batch.times.compute_start_ns = now_ns
        self._batch, self._done = batch, done
        if self._state is not _State.READY or self._link is None:
            # Never from inside of execute: the caller is in the middle of handing out work.
            error = UnavailableError(f"{self._where} is not healthy: {self._reason}")
            asyncio.get_running_loop().call_soon(self._fail_batch, batch, error)
            return
        self._batch_number += 1
        numbered = []
        for request in batch.requests:
            number = self._next_number
            self._next_number += 1
            self._running[number] = request
            request.on_cancel = self._cancel
            numbered.append((number, request))
        try:
            self._link.execute(self._batch_number, numbered)
        except ServingError as error:
            asyncio.get_running_loop().call_soon(self._fail_batch, batch, error)

    async def stop(self) -> None:
        """Finish the batch that runs, finalize the model, end the process.

        When cancelled, the process is killed and what it ran fails.
        """
        was_busy = bool(self._running)
        self._set_state(_State.STOPPED, f"instance '{self.name}' has been stopped")
        if self._timer is not None:
            self._timer.cancel()
        if self._restart_task is not None:
            self._restart_task.cancel()
            await asyncio.wait((self._restart_task,))
        link = self._link
        if link is None:
            return
        try:
            if was_busy:
                await self._wait_idle()
            await link.stop(self._finalize_timeout_s)
        except asyncio.CancelledError:
            self._services.metrics.leave(self)
            link.kill()  # a second stop waits until it is gone
            self._fail_running(BackendError(f"{self._where} was stopped"))
            raise
        self._link = None
        self._services.metrics.leave(self)
        self._fail_running(BackendError(f"{self._where} was stopped"))

    def abandon(self, error: ServingError) -> bool:
        """Kill the process; a `stop` that waits ends with it."""
        self._set_state(_State.STOPPED, f"instance '{self.name}' has been stopped")
        if self._timer is not None:
            self._timer.cancel()
        if self._restart_task is not None:
            self._restart_task.cancel()
        if self._link is not None:
            self._link.kill()
        self._services.metrics.leave(self)
        self._fail_running(error)
        return True

    @property
    def waits_for(self) -> list[OpenCall]:
        """Calls of other models that the batch which it executes waits for."""
        if self._batch is None or self._link is None:
            return []
        executing = set(self._batch.requests)
        return [
            call
            for call in self._link.desk.open_calls
            if any(self._running.get(number) in executing for number in call.callers)
        ]

    def executes(self, request: InferenceRequest) -> bool:
        return request in self._running.values()

    def is_cancelled(self, number: int) -> bool:
        request = self._running.get(number)
        return request is not None and request.is_cancelled

    @property
    def _where(self) -> str:
        return f"model '{self._context.spec.name}', instance '{self.name}'"

    async def _wait_idle(self) -> None:
        while self._running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    async def _start_link(self) -> None:
        link = InstanceLink(
            self.name,
            self._context.spec.name,
            caller=self,
            services=self._services,
            on_responses=self._on_responses,
            on_end=self._on_end,
        )
        await link.start(self._load, self._start_timeout_s, cpu_cores=self._cpu_cores)
        self._link = link
        self._ready_ns = self._clock.now_ns()

    def _set_state(self, state: _State, reason: str) -> None:
        was_ready = self.is_ready
        self._state = state
        self._reason = reason
        if was_ready != self.is_ready and self.on_state_change is not None:
            self.on_state_change()

    def _on_responses(self, message: wire.Responses, unpacker: TensorUnpacker) -> None:
        batch = self._batch if message.batch == self._batch_number else None
        if batch is not None:
            times = batch.times
            times.input_end_ns = message.input_end_ns
            times.output_start_ns = message.output_start_ns
            times.compute_end_ns = time.monotonic_ns()
            batch.stamp_requests()
        answers = []
        try:
            for header in message.responses:
                answer = self._answer(header, unpacker)
                if answer is not None:
                    answers.append(answer)
        except wire.WireError:
            # The process is ended for it; those that it had answered by then have their answers.
            for request, response in answers:
                _deliver(request, response)
            raise
        if batch is not None:
            if message.error is None:
                self._take_rescheduled(batch, message.rescheduled)
            answers += self._unanswered(batch, message.error)
            self._finish_batch(batch)
        for request, response in answers:
            _deliver(request, response)
        self._tell_idle()

    def _take_rescheduled(self, batch: Batch, numbers: list[int]) -> None:
        for number in numbers:
            request = self._running.pop(number, None)
            if request is not None:
                request.on_cancel = None
                batch.rescheduled.append(request)

    def _answer(
        self, header: wire.ResponseHeader, unpacker: TensorUnpacker
    ) -> tuple[InferenceRequest, InferenceResponse] | None:
        request = self._running.get(header.number)
        if request is None:
            if header.number in range(self._next_number):
                return None  # it has failed meanwhile; a thread of the model did not know yet
            raise wire.WireError(f"a response to the unknown request {header.number}")
        response = response_from(header, unpacker, request, self._context.version)
        if header.is_final:
            del self._running[header.number]
        return request, response

    def _unanswered(
        self, batch: Batch, failure: wire.ErrorHeader | None
    ) -> list[tuple[InferenceRequest, InferenceResponse]]:
        """Final answers for the requests that execute left without one."""
        if failure is None and self._context.spec.is_decoupled:
            return []
        error: ServingError = InternalError(
            f"{self._where} gave no response to the request: expected exactly one"
        )
        if failure is not None:
            error = error_from(failure)
        left = set(batch.requests)
        numbers = [number for number, request in self._running.items() if request in left]
        return [
            (request, request.error_response(error))
            for request in (self._running.pop(number) for number in numbers)
        ]

    def _finish_batch(self, batch: Batch) -> None:
        """The instance gets its next batch before the answers go out: it runs meanwhile."""
        done = self._done
        self._batch = self._done = None
        if done is not None:
            finish(done, batch)

    def _cancel(self, request: InferenceRequest) -> None:
        for number, running in self._running.items():
            if running is request and self._link is not None:
                self._link.cancel(number)
                self._link.desk.caller_cancelled(number)
                return

    def _on_end(self, reason: str) -> None:
        """The process has died by itself."""
        self._link = None
        if self._state is not _State.STOPPED:
            logger.error("%s: %s", self._where, reason)
            self._plan_restart(reason, self._clock.now_ns() - self._ready_ns)
        self._fail_running(BackendError(f"{self._where} failed: {reason}"))

    def _plan_restart(self, reason: str, lifetime_ns: int) -> None:
        delay_ns = self._restarts.next_delay_ns(lifetime_ns)
        if delay_ns is None:
            self._set_state(
                _State.FAILED,
                f"instance '{self.name}' is given up after {self._restarts.quick_deaths} quick "
                f"deaths in a row; mend the model and load it again. The last time {reason}",
            )
            logger.error("%s: %s", self._where, self._reason)
            return
        self._set_state(_State.RESTARTING, f"instance '{self.name}' is restarting: {reason}")
        self._timer = self._clock.call_at(self._clock.now_ns() + delay_ns, self._restart)

    def _restart(self) -> None:
        self._timer = None
        if self._state is _State.RESTARTING:
            self._restart_task = asyncio.get_running_loop().create_task(self._restart_now())

    async def _restart_now(self) -> None:
        try:
            await self._start_link()
        except Exception as error:  # whatever it is, the next attempt may succeed
            if self._state is _State.RESTARTING:
                self._plan_restart(str(error), 0)
            return
        logger.info("restarted model=%s instance=%s", self._context.spec.name, self.name)
        self._set_state(_State.READY, "")

    def _fail_running(self, error: ServingError) -> None:
        running, self._running = list(self._running.values()), {}
        batch = self._batch
        if batch is not None:
            batch.times.compute_end_ns = time.monotonic_ns()
            batch.stamp_requests()
            self._finish_batch(batch)
        for request in running:
            _deliver(request, request.error_response(error))
        self._tell_idle()

    def _fail_batch(self, batch: Batch, error: ServingError) -> None:
        left = set(batch.requests)
        for number in [number for number, item in self._running.items() if item in left]:
            del self._running[number]
        batch.times.compute_end_ns = time.monotonic_ns()
        batch.stamp_requests()
        if self._batch is batch:
            self._finish_batch(batch)
        for request in batch.requests:
            _deliver(request, request.error_response(error))
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not self._running and self._idle_waiters:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


def _deliver(request: InferenceRequest, response: InferenceResponse) -> None:
    if response.is_final:
        request.on_cancel = None
    deliver(request, response)


def _load_message(context: ModelContext, backend_name: str, placement: Placement) -> wire.Load:
    return wire.Load(
        BUILT_IN.get(backend_name, backend_name),
        context.config.SerializeToString(),
        context.version,
        str(context.model_directory),
        dict(context.backend_config),
        placement.instance_name,
        placement.kind.value,
        placement.device_id,
    )
