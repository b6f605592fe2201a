"""The dynamic batcher: puts waiting requests together while instances are busy.

What goes together is decided by `BatchRules`, who waits in which order by `RequestQueue`; this file
joins them with the clock: `take_batch(now_ns)` is the whole decision, one timer serves the queue
delay and the queue timeouts. Requests that arrive in one turn of the loop are looked at together.
Loop thread only. Behaviour after spec SCH-030..046.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.clock import Clock
from serving.config.decode import ModelSpec
from serving.errors import QueueRejectedError
from serving.instance.base import Batch
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest
from serving.scheduling.alarm import Alarm
from serving.scheduling.batch import BatchRules, Choice
from serving.scheduling.custom_batching import BatchStrategy
from serving.scheduling.dispatch import DispatchingScheduler
from serving.scheduling.ordering import ResponseOrder
from serving.scheduling.queue import RequestQueue


class DynamicBatcher(DispatchingScheduler):
    def __init__(
        self,
        spec: ModelSpec,
        pool: InstancePool,
        clock: Clock,
        *,
        on_executed: Callable[[Batch], None] | None = None,
        hold_until: int = 0,
        strategy: BatchStrategy | None = None,
    ) -> None:
        """`hold_until`: form no batch before that many requests wait, once (a test hook).

        `strategy` is closed at the end of `stop`.
        """
        batching = spec.dynamic_batching
        queue = RequestQueue(
            spec.name,
            priority_levels=batching.priority_levels,
            default_level=batching.default_priority_level,
            default_policy=batching.default_queue_policy,
            level_policies=batching.priority_queue_policy,
        )
        super().__init__(spec.name, pool, clock, queue=queue, on_executed=on_executed)
        self._rules = BatchRules(spec, strategy)
        self._strategy = strategy
        self._max_size = max(1, spec.max_batch_size)
        policy = batching.default_queue_policy
        # Who waits at the instance cannot be overtaken any more, nor run out of time.
        self._goes_ahead = not (
            strategy or batching.priority_levels or policy.default_timeout_us or hold_until
        )
        self._order = ResponseOrder() if batching.preserve_ordering else None
        self._hold_until = hold_until
        self._wake_ns = 0
        """When the batch that is forming must go; 0 for no wait."""
        self._alarm = Alarm(clock, self._pump)

    def __repr__(self) -> str:
        text = f"<DynamicBatcher {self._model_name} {self._queue!r} executing={self._executing}"
        if self._hold_until:
            text += f" holding until {self._hold_until}"
        if self._wake_ns:
            text += f" waiting until {self._wake_ns}"
        return text + (" stopping>" if self._is_stopping else ">")

    async def stop(self) -> None:
        await super().stop()
        strategy, self._strategy = self._strategy, None
        if strategy is not None:
            strategy.close()

    def enqueue(self, request: InferenceRequest) -> None:
        has_idle = self._pool.has_idle
        if self._is_stopping or not has_idle:
            self._refuse()
        now_ns = request.times.queue_start_ns = self._clock.now_ns()
        self._queue.push(request, now_ns)
        request.on_cancel = self._cancel_queued
        if self._order is not None:
            self._order.join(request)
        if has_idle:
            # Not at once: what else this turn of the loop brings belongs to the same batch.
            self._alarm.set(now_ns)
        else:
            self._pool.want_turn()
            is_full = self._queue.batch_items >= self._max_size
            if is_full and self._goes_ahead and self._pool.takes_ahead:
                self._alarm.set(now_ns)
            else:
                self._alarm.set(self._queue.next_deadline_ns())

    def take_batch(self, now_ns: int) -> Batch | None:
        """The batch to execute now, taken out of the queue; None when there is none or it waits.

        Requests whose queue timeout is over are answered on the way.
        """
        self._expire(now_ns)
        self._wake_ns = 0
        if self._hold_until and not self._is_stopping:
            if len(self._queue) < self._hold_until:
                return None
            self._hold_until = 0
        if not len(self._queue):
            return None
        choice = self._rules.choose(self._queue, now_ns)
        if not choice.requests:
            self._wake_ns = choice.wait_until_ns
            return None
        return self._take(choice)

    def _take(self, choice: Choice) -> Batch:
        for request in choice.requests:
            self._queue.remove(request)
        return Batch(choice.requests, choice.batch_size, choice.reason)

    def _pump(self) -> None:
        now_ns = self._clock.now_ns()
        # No instance: what was planned for this moment must not ring again and again.
        self._wake_ns = 0
        while self._pool.has_idle and (batch := self.take_batch(now_ns)) is not None:
            host = self._pool.acquire()
            assert host is not None
            self._dispatch(host, batch)
        if self._goes_ahead and len(self._queue) and self._pool.takes_ahead:
            self._go_ahead(now_ns)
        self._expire(now_ns)
        if len(self._queue):
            self._pool.want_turn()
        deadline_ns = self._queue.next_deadline_ns()
        due = [when for when in (self._wake_ns, deadline_ns) if when]
        self._alarm.set(min(due, default=0))

    def _go_ahead(self, now_ns: int) -> None:
        """A batch that cannot grow any more may wait at the instance instead of here."""
        choice = self._rules.choose(self._queue, now_ns)
        if choice.is_closed and (host := self._pool.acquire_ahead()) is not None:
            self._dispatch(host, self._take(choice))

    def _expire(self, now_ns: int) -> None:
        for request in self._queue.expire(now_ns):
            waited_us = (now_ns - request.times.queue_start_ns) // 1000
            self._answer(
                request,
                QueueRejectedError(
                    f"Request timeout expired: the request waited {waited_us} us in the queue of "
                    f"model '{self._model_name}'; send it again later, or raise the queue timeout"
                ),
            )
