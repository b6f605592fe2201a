"""The scheduler of models without a scheduling choice: one request, one execution, first in first
out, by any idle instance. Instances that run in a few microseconds get several at once, still one
execution each. Behaviour after spec SCH-020..022. Loop thread only.
"""

from __future__ import annotations

from serving.instance.base import Batch
from serving.request import InferenceRequest
from serving.scheduling.dispatch import DispatchingScheduler


class DefaultScheduler(DispatchingScheduler):
    def enqueue(self, request: InferenceRequest) -> None:
        host = None
        if not self._is_stopping and not self._queue.present:
            host = self._pool.acquire() or self._pool.acquire_ahead()
        if host is None:
            self._refuse()
        now_ns = request.times.queue_start_ns = self._clock.now_ns()
        if host is not None:
            self._dispatch(host, Batch([request], request.batch_size))
            return
        self._queue.push(request, now_ns)
        request.on_cancel = self._cancel_queued

    def _pump(self) -> None:
        queue, pool = self._queue.present, self._pool
        while queue:
            waiting = len(queue)
            host = pool.acquire() or pool.acquire_ahead()
            if host is None:
                return
            # A rate limiter counts turns: one for each execution.
            if waiting > 1 and pool.turns is None and host.burst_limit > 1:
                # What each idle instance would get if they shared the queue.
                share = -(-waiting // (1 + pool.idle_count))
                count = min(share, host.burst_limit)
                self._dispatch_burst(host, [self._next() for _ in range(count)])
            else:
                self._dispatch(host, self._next())

    def _next(self) -> Batch:
        request = self._queue.pop_first()
        return Batch([request], request.batch_size)
