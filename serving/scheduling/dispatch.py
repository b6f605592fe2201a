"""What every scheduler that feeds instances shares: handing out batches, counting, draining.

A subclass says in `_pump` which of the waiting requests idle instances get. Loop thread only.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from serving.clock import Clock
from serving.errors import (
    BackendError,
    QueueRejectedError,
    ServingError,
    UnavailableError,
)
from serving.instance.base import Batch, InstanceHost, cancelled_in_queue
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest
from serving.scheduling.queue import RequestQueue


class DispatchingScheduler(ABC):
    def __init__(
        self,
        model_name: str,
        pool: InstancePool,
        clock: Clock,
        *,
        queue: RequestQueue | None = None,
        on_executed: Callable[[Batch], None] | None = None,
    ) -> None:
        self._model_name = model_name
        self._pool = pool
        self._clock = clock
        self._on_executed = on_executed
        self._queue = RequestQueue(model_name) if queue is None else queue
        self._executing = 0
        self._ahead_count = 0
        """Requests in the batch that went ahead last."""
        self._is_stopping = False
        self._stop_waiters: list[asyncio.Future[None]] = []
        pool.on_idle = self._on_instance_change

    def __repr__(self) -> str:
        stopping = " stopping" if self._is_stopping else ""
        return (
            f"<{type(self).__name__} {self._model_name} queued={len(self._queue)} "
            f"executing={self._executing}{stopping}>"
        )

    @property
    def queued_count(self) -> int:
        """Also those at an instance, behind what that executes."""
        return len(self._queue) + (0 if self._pool.ahead is None else self._ahead_count)

    @property
    def inflight_count(self) -> int:
        return len(self._queue) + self._executing

    @property
    def _has_work(self) -> bool:
        """`stop` waits for it."""
        return self.inflight_count > 0

    @property
    def unready_reason(self) -> str:
        return self._pool.unready_reason

    async def stop(self) -> None:
        self._is_stopping = True
        self._pump()
        if self._has_work:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._stop_waiters.append(waiter)
            await waiter

    @abstractmethod
    def _pump(self) -> None:
        """Give idle instances what is due."""

    def _on_instance_change(self) -> None:
        if self._pool.has_failed:
            self._fail_queued(self._all_failed())
        else:
            self._pump()

    def abandon(self, error: ServingError) -> None:
        self._is_stopping = True
        self._fail_queued(error)

    def _fail_queued(self, error: ServingError) -> None:
        # One by one: whoever hears of the failure may cancel others that wait.
        while len(self._queue):
            self._answer(self._queue.pop_first(), error)

    def _all_failed(self) -> UnavailableError:
        return UnavailableError(
            f"model '{self._model_name}' has no working instance: {self._pool.unready_reason}; "
            "load it again"
        )

    def _refuse(self) -> None:
        """Raises: ServingError when no new request can be taken."""
        if self._pool.has_failed:
            raise self._all_failed()
        if self._is_stopping:
            raise QueueRejectedError(
                f"Server is stopping, or model '{self._model_name}' is being unloaded: it takes no "
                "new requests; send the request again later or to another server"
            )

    def _dispatch(self, host: InstanceHost, batch: Batch) -> None:
        self._start(batch)
        if host is self._pool.ahead:
            self._ahead_count = len(batch.requests)
        host.execute(batch, partial(self._executed, host))

    def _dispatch_burst(self, host: InstanceHost, batches: Sequence[Batch]) -> None:
        """Several batches for one host, which runs them one after the other."""
        for batch in batches:
            self._start(batch)
        last = batches[-1]

        def executed(batch: Batch) -> None:
            if batch is last:
                self._executed(host, batch)
            else:
                self._count_executed(batch)
                for request in batch.rescheduled:
                    self._reschedule(request)

        host.execute_burst(batches, executed)

    def _start(self, batch: Batch) -> None:
        now_ns = self._clock.now_ns()
        for request in batch.requests:
            request.on_cancel = None
            # The host stamps the real start; this one stands if the batch never gets that far.
            request.times.compute_start_ns = now_ns
        self._executing += len(batch.requests)

    def _count_executed(self, batch: Batch) -> None:
        self._executing -= len(batch.requests)
        if batch.is_returned:
            for request in reversed(batch.requests):
                self._take_back(request)
        elif self._on_executed is not None:
            self._on_executed(batch)

    def _executed(self, host: InstanceHost, batch: Batch) -> None:
        self._count_executed(batch)
        self._pool.release(host)
        for request in batch.rescheduled:
            self._reschedule(request)
        self._pump()
        if self._is_stopping:
            self._tell_stopped()

    def _take_back(self, request: InferenceRequest) -> None:
        """Its instance was gone before it was executed: it is the next in the queue again."""
        request.times.compute_start_ns = 0
        if self._pool.has_failed:
            self._answer(request, self._all_failed())
        elif request.is_cancelled:
            self._answer(request, cancelled_in_queue(self._model_name))
        else:
            self._queue.put_back(request)
            request.on_cancel = self._cancel_queued

    def _reschedule(self, request: InferenceRequest) -> None:
        """The model wants to execute the request once more: iterative sequences override this."""
        self._answer(
            request,
            BackendError(
                f"model '{self._model_name}' asked to reschedule a request, which only a model "
                "with sequence_batching and iterative_sequence may"
            ),
        )

    def _tell_stopped(self) -> None:
        if self._is_stopping and not self._has_work:
            waiters, self._stop_waiters = self._stop_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _answer(self, request: InferenceRequest, error: ServingError) -> None:
        """Fail a request that has left the queue without an execution."""
        request.on_cancel = None
        if request.deliver is not None:
            request.deliver(request, request.error_response(error))
        self._tell_stopped()

    def _cancel_queued(self, request: InferenceRequest) -> None:
        """`on_cancel` of a waiting request."""
        if request not in self._queue:
            return  # it has left just now, and its answer is on the way
        self._queue.remove(request)
        self._answer(request, cancelled_in_queue(self._model_name))
