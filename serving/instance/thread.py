"""Hosts a model instance in a thread of its own in this process.

The loop hands over whole batches through a SimpleQueue and gets all answers of a batch back with
one `call_soon_threadsafe`: a crossing costs 20-60 us, so it is paid once for each batch. The
instance is created, used and closed in its thread. `_run` and `_respond` are the only code here
that the thread enters; everything else belongs to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from serving import host_policies
from serving.backends.base import LoadedModel, ModelInstance, Placement, instance_of
from serving.errors import BackendError, InstanceLostError, InternalError, ServingError
from serving.instance.base import Batch, cancel_waiting, deliver, finish
from serving.instance.burst import BurstLimit
from serving.request import InferenceRequest, request_tag
from serving.response import InferenceResponse

logger = logging.getLogger(__name__)

READY_LIMIT_S = 5.0
"""No answer of a model in this time is a no."""
Answer = tuple[InferenceRequest, InferenceResponse]
Done = Callable[[Batch], None]


@dataclass(slots=True)
class _Work:
    """Batches that cross to the thread together, and what came of them."""

    batches: Sequence[Batch]
    done: Done
    answers: list[list[Answer]] = field(default_factory=list)
    failures: list[ServingError | None] = field(default_factory=list)


@dataclass(slots=True)
class _Question:
    """Whether the model says that it is ready (BE-009)."""

    answer: asyncio.Future[bool]


class ThreadHost:
    """One instance, one thread."""

    def __init__(
        self,
        loaded: LoadedModel,
        placement: Placement,
        loop: asyncio.AbstractEventLoop,
        *,
        model_name: str,
        is_decoupled: bool = False,
    ) -> None:
        self.name = placement.instance_name
        self.on_state_change: Callable[[], None] | None = None
        self._loaded = loaded
        self._placement = placement
        self._loop = loop
        self._model_name = model_name
        self._is_decoupled = is_decoupled
        self._work: SimpleQueue[_Work | _Question | None] = SimpleQueue()
        self._answers: list[Answer] = []
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._started: asyncio.Future[ServingError | None] | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._is_ready = False
        self._lost = ""
        """Why the instance cannot execute again."""
        self._works: deque[_Work] = deque()
        """The first is executed, the second waits behind it."""
        self._has_ready_hook = False
        self._said_ready = True
        """The model's last answer."""
        self._is_closing = False
        self._is_abandoned = False
        self._burst = BurstLimit()
        self._lost_by: InstanceLostError | None = None
        """The instance's thread: what it must not execute again after."""

    def __repr__(self) -> str:
        state = "busy" if self._works else "idle" if self._is_ready else "stopped"
        return f"<ThreadHost {self.name} {state}>"

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    @property
    def unready_reason(self) -> str:
        if self._is_ready:
            return ""
        return self._lost or f"instance '{self.name}' is not running"

    @property
    def has_ready_hook(self) -> bool:
        return self._has_ready_hook

    async def check_ready(self) -> bool:
        """While it executes it cannot be asked: then its last answer stands."""
        if self._has_ready_hook and self._is_ready and not self._works:
            question = _Question(self._loop.create_future())
            self._work.put(question)
            done, _ = await asyncio.wait({question.answer}, timeout=READY_LIMIT_S)
            self._said_ready = bool(done) and question.answer.result()
        return self._is_ready and self._said_ready

    @property
    def has_failed(self) -> bool:
        # A thread ends when it is stopped, and by nothing else; what it runs may be lost.
        return bool(self._lost)

    async def start(self) -> None:
        self._started = self._loop.create_future()
        self._stopped = self._loop.create_future()
        self._thread.start()
        error = await self._started
        if error is not None:
            raise error
        self._is_ready = True

    @property
    def burst_limit(self) -> int:
        """How many batches may come at once: 1, unless the model is so fast that crossing the
        thread border costs more than the run. A burst holds up its first answer for 0.2 ms at most.
        """
        return self._burst.batches

    @property
    def takes_ahead(self) -> bool:
        return (
            len(self._works) == 1
            and self._burst.goes_ahead
            and self._is_ready
            and not self._is_decoupled
        )

    def execute(self, batch: Batch, done: Done) -> None:
        self.execute_burst([batch], done)

    def execute_burst(self, batches: Sequence[Batch], done: Done) -> None:
        """Like `execute` for several batches, one after the other; `done` is called for each."""
        for batch in batches:
            for request in batch.requests:
                request.responder = self._respond
                request.rescheduler = batch.rescheduled.append
                if self._works:
                    request.on_cancel = self._cancel_waiting
        work = _Work(batches, done)
        self._works.append(work)
        self._work.put(work)

    def _cancel_waiting(self, request: InferenceRequest) -> None:
        waiting = list(self._works)[1:]
        if any(request in batch.requests for work in waiting for batch in work.batches):
            cancel_waiting(request)

    async def stop(self) -> None:
        self._is_ready = False
        if self._stopped is None:
            return
        self._is_closing = True
        self._work.put(None)
        await self._stopped

    def abandon(self, error: ServingError) -> bool:
        """A thread cannot be ended: it goes on, and closes its instance if it ever comes back."""
        self._is_ready = False
        if self._stopped is None or self._stopped.done():
            return True
        works = list(self._works)
        self._works.clear()
        self._work.put(None)
        if not works and not self._is_closing:
            self._is_closing = True
            return True  # idle: it closes by itself
        self._is_abandoned = True
        now_ns = time.monotonic_ns()
        for work in works:
            for batch in work.batches:
                batch.times.compute_start_ns = batch.times.compute_start_ns or now_ns
                batch.times.compute_end_ns = now_ns
                batch.stamp_requests()
                finish(work.done, batch)
            for batch in work.batches:
                for request in batch.requests:
                    deliver(request, request.error_response(error))
        _settle(self._stopped, None)
        return False

    def _run(self) -> None:
        assert self._started is not None
        assert self._stopped is not None
        host_policies.bind(self._placement.cpu_cores)
        try:
            instance = instance_of(self._loaded, self._placement)
            self._has_ready_hook = instance.has_ready_hook
        except BaseException as error:  # SystemExit too: the load would wait for ever
            self._post(_settle, self._started, _as_load_error(error, self.name))
            self._post(_settle, self._stopped, None)
            return
        self._post(_settle, self._started, None)
        while (work := self._work.get()) is not None:
            if isinstance(work, _Question):
                self._post(_settle, work.answer, self._ask_ready(instance))
                continue
            if self._is_abandoned:
                continue  # it has waited behind the one that was, and has its answers
            for batch in work.batches:
                work.failures.append(self._execute(instance, batch))
                work.answers.append(self._answers)
                self._answers = []
            self._post(self._finish, work)
        try:
            instance.close()
        except BaseException:
            logger.exception("closing failed instance=%s", self.name)
        self._post(_settle, self._stopped, None)

    def _ask_ready(self, instance: ModelInstance) -> bool:
        try:
            return instance.is_ready()
        except Exception as error:  # the hook is the model's
            logger.warning(
                "is_ready failed: %s model=%s instance=%s", error, self._model_name, self.name
            )
            return False

    def _execute(self, instance: ModelInstance, batch: Batch) -> ServingError | None:
        times = batch.times
        times.compute_start_ns = time.monotonic_ns()
        failure: ServingError | None = self._lost_by
        try:
            if failure is None:
                instance.execute(batch.requests, times)
        except InstanceLostError as error:
            failure = self._lost_by = error
        except ServingError as error:
            failure = error
        except BaseException as error:
            # SystemExit too: a thread that ends here would leave its requests without an answer.
            logger.exception("execution failed model=%s instance=%s", self._model_name, self.name)
            failure = BackendError(f"model '{self._model_name}' failed to execute: {error}")
            failure.__cause__ = error
        if failure is not None:
            batch.rescheduled.clear()
        times.compute_end_ns = time.monotonic_ns()
        self._burst.record(times.compute_end_ns - times.compute_start_ns)
        return failure

    def _respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """The responder of every request here: any thread of the model may call it."""
        if response.is_final:
            request.responder = _drop
        if response.is_final and threading.get_ident() == self._thread.ident:
            self._answers.append((request, response))
        else:
            self._post(deliver, request, response)

    def _post(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            logger.warning("the event loop is closed; dropped a result instance=%s", self.name)

    def _finish(self, work: _Work) -> None:
        if self._is_abandoned:
            return  # its requests have been answered, and nobody waits for the instance
        self._works.popleft()
        lost = next((item for item in work.failures if isinstance(item, InstanceLostError)), None)
        if lost is not None and not self._lost:
            self._lose(lost)
        for batch in work.batches:
            batch.stamp_requests()
            # The instance gets its next batch before the answers go out: it runs meanwhile.
            finish(work.done, batch)
        for batch, answers, failure in zip(work.batches, work.answers, work.failures, strict=True):
            if len(answers) + len(batch.rescheduled) != len(batch.requests) or failure is not None:
                answers = self._completed(batch, answers, failure)
            for request, response in answers:
                deliver(request, response)

    def _lose(self, error: InstanceLostError) -> None:
        """No more work for it; a thread cannot start its runtime anew, as a process can."""
        self._is_ready = False
        self._lost = (
            f"instance '{self.name}' is lost: {error.message}. Restart the server; with the "
            "parameter instance_isolation set to process the instance would start anew by itself"
        )
        logger.error("%s model=%s", self._lost, self._model_name)
        if self.on_state_change is not None:
            self.on_state_change()

    def _completed(
        self, batch: Batch, answers: list[Answer], failure: ServingError | None
    ) -> list[Answer]:
        """One final answer for each request: fails those without."""
        if failure is None and self._is_decoupled:
            return answers
        answered = {request for request, _ in answers} | set(batch.rescheduled)
        error = failure or InternalError(
            f"model '{self._model_name}' gave no final response: expected a single response for "
            "each request"
        )
        missing = [request for request in batch.requests if request not in answered]
        return answers + [(request, request.error_response(error)) for request in missing]


def _drop(request: InferenceRequest, response: InferenceResponse) -> None:
    """The responder after the final response."""
    logger.warning(
        "%s dropped a response after the final one model=%s",
        request_tag(request.id),
        request.model_name,
    )


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _as_load_error(error: BaseException, instance: str) -> ServingError:
    if isinstance(error, ServingError):
        return error
    return BackendError(f"instance '{instance}' could not be created: {error}")
