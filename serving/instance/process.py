"""Hosts a model instance in a child process: what runs there, restarts, readiness.

A process that dies fails what it was executing at once, and is started again with growing delays
until it is clear that it will not live. Loop thread only; time comes from the clock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence

from serving.backends.base import ModelContext, Placement
from serving.clock import TimerHandle
from serving.errors import BackendError, InternalError, ServingError, UnavailableError
from serving.instance import wire
from serving.instance.base import Batch, cancel_waiting, deliver, finish
from serving.instance.call_desk import OpenCall
from serving.instance.codec import error_from, response_from
from serving.instance.executions import Burst, Done, Executions
from serving.instance.gpu_use import GpuUse
from serving.instance.limits import ProcessLimits
from serving.instance.link import InstanceLink, load_message, plan_of
from serving.instance.restart import RestartCounter
from serving.instance.running import RunningRequests
from serving.instance.shared_tensors import TensorUnpacker
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices

logger = logging.getLogger(__name__)
model_logger = logging.getLogger("serving.models")


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
        limits: ProcessLimits | None = None,
    ) -> None:
        """`backend_name` is a registered name, or `module:Class`.

        Raises: InvalidArgumentError when the model or the server has set an impossible limit.
        """
        self.name = placement.instance_name
        self.on_state_change: Callable[[], None] | None = None
        self._context = context
        self._load = load_message(context, backend_name, placement)
        self._plan = plan_of(context, placement)
        self.gpu_use = GpuUse.of(placement)
        """For the events of a load and of an unload."""
        self._cpu_cores = placement.cpu_cores
        self._services = services
        self._clock = services.clock
        self._limits = limits or ProcessLimits.of(context)
        self._restarts = RestartCounter(self._limits.restart)
        self._state = _State.NEW
        self.is_ready = False
        """In the state READY; asked for every request."""
        self._reason = f"instance '{self.name}' has not been started"
        self._link: InstanceLink | None = None
        self._executions = Executions()
        self._ready_ns = 0
        self._running = RunningRequests()
        self._watchdog: TimerHandle | None = None
        """Ends the process when its execution takes too long."""
        self._fault = ""
        """Why the process was ended by its host."""
        self._timer: TimerHandle | None = None
        self._restart_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ProcessHost {self.name} {self._state.value} running={len(self._running)}>"

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
        use = self.gpu_use
        if use is not None:
            use.before_start = use.now()
        await self._start_link()
        if use is not None:
            use.after_start = use.now()
        self._set_state(_State.READY, "")

    @property
    def burst_limit(self) -> int:
        return 1 if self._context.spec.is_decoupled else self._executions.limit.batches

    @property
    def takes_ahead(self) -> bool:
        executions, link = self._executions, self._link
        return (
            len(executions.bursts) == 1
            and executions.limit.goes_ahead
            and self.is_ready
            and not self._context.spec.is_decoupled
            # Else a call that comes back here, and is refused as a dead-lock, would be executed.
            and not (link and link.desk.open_calls)
        )

    def execute(self, batch: Batch, done: Done) -> None:
        self.execute_burst([batch], done)

    def execute_burst(self, batches: Sequence[Batch], done: Done) -> None:
        """Like `execute` for several batches, one after the other; `done` is called for each."""
        burst = self._executions.begin(batches, done)
        if self._state is not _State.READY or self._link is None:
            # Never from inside of execute: the caller is in the middle of handing out work.
            error = UnavailableError(f"{self._where} is not healthy: {self._reason}")
            asyncio.get_running_loop().call_soon(self._fail, [burst], burst.requests, error)
            return
        numbered, sizes = [], []
        for batch in batches:
            sizes.append(len(batch.requests))
            for request in batch.requests:
                request.on_cancel = self._cancel
                numbered.append((self._running.add(request), request))
        if self._watchdog is None:
            self._watch()
        try:
            self._link.execute(burst.first, sizes, numbered)
        except ServingError as error:
            for batch in batches:
                self._running.take(batch)
            asyncio.get_running_loop().call_soon(self._fail, [burst], burst.requests, error)

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
        use = self.gpu_use
        try:
            if was_busy:
                await self._running.drained()
            if use is not None:
                use.before_end = use.now()
            await link.stop(self._limits.finalize_s)
        except asyncio.CancelledError:
            self._services.metrics.leave(self)
            link.kill()  # a second stop waits until it is gone
            self._fail_running(BackendError(f"{self._where} was stopped"))
            raise
        if use is not None:
            use.after_end = use.now()
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
    def has_ready_hook(self) -> bool:
        return self._link is not None and self._link.has_ready_hook

    async def check_ready(self) -> bool:
        """Whether the process lives, and its model says that it is ready (PB-008).

        While it executes it cannot be asked: then its last answer stands.
        """
        link = self._link
        if link is None or not link.has_ready_hook:
            return self.is_ready
        says_ready = link.said_ready if self._executions.bursts else await link.check_ready()
        return self.is_ready and says_ready

    @property
    def waits_for(self) -> list[OpenCall]:
        """Calls of other models that the batch which it executes waits for."""
        executing = self._executions.running
        if not executing or self._link is None:
            return []
        calls = self._link.desk.open_calls
        return [call for call in calls if self._running.among(call.callers, executing)]

    def executes(self, request: InferenceRequest) -> bool:
        return self._running.number_of(request) is not None

    def request_of(self, number: int) -> InferenceRequest | None:
        return self._running.get(number)

    @property
    def _where(self) -> str:
        return f"model '{self._context.spec.name}', instance '{self.name}'"

    async def _start_link(self) -> None:
        link = InstanceLink(
            self._plan,
            caller=self,
            services=self._services,
            on_responses=self._on_responses,
            on_end=self._on_end,
        )
        await link.start(self._load, self._limits.initialize_s, cpu_cores=self._cpu_cores)
        self._link = link
        self._ready_ns = self._clock.now_ns()

    def _set_state(self, state: _State, reason: str) -> None:
        was_ready = self.is_ready
        self._state = state
        self.is_ready = state is _State.READY
        self._reason = reason
        if was_ready != self.is_ready and self.on_state_change is not None:
            self.on_state_change()

    def _on_responses(self, message: wire.Responses, unpacker: TensorUnpacker) -> None:
        ended = self._executions.stamp(message.done)
        running, version = self._running, self._context.version
        answers = []
        try:
            for header in message.responses:
                request = running.by_number.get(header.number)
                if request is not None:
                    answers.append((request, response_from(header, unpacker, request, version)))
                    if header.is_final:
                        running.pop(header.number)
                elif not running.was_given(header.number):
                    raise wire.WireError(f"a response to the unknown request {header.number}")
                # else it has failed meanwhile; a thread of the model did not know yet
        except wire.WireError:
            # The process is ended for it; those that it had answered by then have their answers.
            for request, response in answers:
                deliver(request, response)
            raise
        if ended is not None:
            for batch, done in zip(ended.batches, message.done, strict=True):
                if done.error is None and done.rescheduled:
                    batch.rescheduled += running.take_numbers(done.rescheduled)
                if running.by_number or done.error is not None:
                    answers += self._unanswered(batch, done.error)
            self._finish(ended)
        for request, response in answers:
            deliver(request, response)
        if not running.by_number:
            running.tell()

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
            extra = {"model": self._context.spec.name, "instance": self.name, "stream": "error"}
            model_logger.warning("%s: %s", self.name, error.message, extra=extra)
        return [(request, request.error_response(error)) for request in self._running.take(batch)]

    def _finish(self, burst: Burst) -> None:
        """The instance gets its next batch before the answers go out: it runs meanwhile."""
        bursts = self._executions.bursts
        if burst not in bursts:
            return
        bursts.remove(burst)
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if bursts:
            self._watch()
        for batch in burst.batches:
            finish(burst.done, batch)

    def _watch(self) -> None:
        """The execution that begins now may not take longer than its limit."""
        if self._limits.execute_s:
            end_ns = self._clock.now_ns() + int(self._limits.execute_s * 1e9)
            self._watchdog = self._clock.call_at(end_ns, self._end_overdue)

    def _cancel(self, request: InferenceRequest) -> None:
        number = self._running.number_of(request)
        if number is not None and self._link is not None:
            self._link.cancel(number)
            self._link.desk.caller_cancelled(number)
            if self._executions.has_waiting(request):
                cancel_waiting(request)

    def _end_overdue(self) -> None:
        """The execution takes longer than it may: only the end of the process ends it."""
        self._watchdog = None
        if self._executions.bursts and self._link is not None:
            self._fault = (
                f"an execution did not end within {self._limits.execute_s:g} s; mend what it "
                "waits for, or raise execute_timeout_seconds"
            )
            self._link.kill()

    def _on_end(self, reason: str) -> None:
        """The process has ended, and nobody had stopped it."""
        self._link = None
        reason, self._fault = self._fault or reason, ""
        if self._state is not _State.STOPPED:
            logger.error("%s: %s", self._where, reason)
            self._plan_restart(reason, self._clock.now_ns() - self._ready_ns)
            self._give_back_waiting()
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

    def _give_back_waiting(self) -> None:
        """What has not begun may go to the next process."""
        for burst in self._executions.waiting:
            for batch in burst.batches:
                self._running.take(batch)
                batch.is_returned = True
            self._finish(burst)

    def _fail_running(self, error: ServingError) -> None:
        self._fail(list(self._executions.bursts), self._running.take_all(), error)

    def _fail(
        self, bursts: Sequence[Burst], requests: Sequence[InferenceRequest], error: ServingError
    ) -> None:
        for burst in bursts:
            burst.stamp_failed()
            self._finish(burst)
        for request in requests:
            deliver(request, request.error_response(error))
        self._running.tell()
