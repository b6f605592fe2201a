"""The sequence batcher: joins slots, backlog and strategy with the clock and the instances.

A request enters through `enqueue` and stands in the line of its sequence. The head of a line is
*offered* to the sequence's lane when nothing of the sequence runs; the strategy picks a batch out
of what a lane is offered. The next request is offered when the execution has ended and the final
response is there. Requests that arrive in one turn of the loop are looked at together.
Loop thread only. Behaviour after spec SCH-050..070.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from serving.clock import Clock
from serving.config.decode import ModelSpec
from serving.errors import ServingError
from serving.instance.base import Batch, InstanceHost
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest, request_tag
from serving.response import InferenceResponse
from serving.scheduling.alarm import Alarm
from serving.scheduling.dispatch import DispatchingScheduler
from serving.scheduling.sequence.backlog import Backlog
from serving.scheduling.sequence.book import Book
from serving.scheduling.sequence.controls import ControlInputs
from serving.scheduling.sequence.idle import IdleWatch
from serving.scheduling.sequence.iterative import IterativeIds, again
from serving.scheduling.sequence.lanes import Lane, Lanes, SlotUsage
from serving.scheduling.sequence.record import Sequence
from serving.scheduling.sequence.refusals import (
    cancelled,
    check_request,
    lost,
    not_started,
    timed_out,
)
from serving.scheduling.sequence.state import ImplicitState
from serving.scheduling.sequence.strategy import make_rules

logger = logging.getLogger(__name__)


class SequenceBatcher(DispatchingScheduler):
    def __init__(
        self,
        spec: ModelSpec,
        pool: InstancePool,
        clock: Clock,
        *,
        states: ImplicitState | None = None,
        on_executed: Callable[[Batch], None] | None = None,
        hold_until: int = 0,
        hold_backlog: int = 0,
    ) -> None:
        """`hold_until`, `hold_backlog`: run nothing before that many requests wait in slots, and
        that many in the backlog; once (test hooks, SCH-070).
        """
        super().__init__(spec.name, pool, clock, on_executed=on_executed)
        batching = spec.sequence_batching
        self._controls = ControlInputs(spec)
        self._states = states
        self._ids: IterativeIds | None = None
        if batching.is_iterative:
            self._ids = IterativeIds(is_text=self._controls.takes_text_ids)
        self._rules = make_rules(spec, self._controls.filler)
        self._lanes = Lanes(pool, spec.sequence_slots, preserve_ordering=batching.preserve_ordering)
        self._backlog = Backlog()
        self._idle = IdleWatch(batching.max_idle_us)
        self._idle_us = batching.max_idle_us
        self._book = Book()
        self._sequence_of: dict[InferenceRequest, Sequence] = {}
        """Of every request that waits or runs."""
        self._hold_until = hold_until
        self._hold_backlog = hold_backlog
        self._wake_ns = 0
        self._alarm = Alarm(clock, self._pump)

    def __repr__(self) -> str:
        stopping = " stopping" if self._is_stopping else ""
        return (
            f"<SequenceBatcher {self._model_name} {self._book!r} {self._backlog!r} "
            f"waiting={len(self._queue)} executing={self._executing}{stopping}>"
        )

    @property
    def slot_usage(self) -> SlotUsage:
        return self._lanes.usage(len(self._backlog) + len(self._book.following))

    def serves(self, correlation_id: int | str) -> bool:
        """A sequence with this id is open here."""
        return correlation_id in self._book

    def enqueue(self, request: InferenceRequest) -> None:
        sequence = self._admit(request)
        now_ns = request.times.queue_start_ns = self._clock.now_ns()
        request.on_cancel = self._cancel
        self._queue.push(request, now_ns)
        self._sequence_of[request] = sequence
        sequence.waiting.append(request)
        self._idle.discard(sequence)
        if request.sequence_end:
            self._seal(sequence, "its last request had the END flag")
        if sequence.lane is not None:
            self._offer(sequence, now_ns)
        elif sequence in self._backlog:
            self._backlog.limit(sequence, request)
        # Not at once: what else this turn of the loop brings belongs to the same batch.
        self._alarm.set(now_ns)

    def _admit(self, request: InferenceRequest) -> Sequence:
        """The sequence of the request, a new one if it begins one. Raises ServingError."""
        if self._pool.has_failed:
            raise self._all_failed()
        if self._ids is not None:
            self._ids.begin(request, self._book)
        check_request(request)
        correlation_id = request.correlation_id
        self._controls.check_id(correlation_id)
        sequence = self._book.get(correlation_id)
        if not request.sequence_start:
            if sequence is None:
                why = self._book.explain(correlation_id, self._clock.now_ns())
                raise not_started(request, why)
            return sequence
        self._refuse()
        if sequence is not None:
            logger.warning(
                "%s sequence %r started again before it ended: what waits of it runs first "
                "model=%s",
                request_tag(request.id),
                correlation_id,
                self._model_name,
            )
            return sequence
        sequence, is_free = self._book.begin(correlation_id)
        if is_free:
            self._seat(sequence)
        return sequence

    def _seat(self, sequence: Sequence) -> None:
        """Give the sequence a slot, or the last place in the backlog."""
        if len(self._backlog) or not self._lanes.place(sequence):
            self._backlog.add(sequence)

    def _offer(self, sequence: Sequence, now_ns: int) -> None:
        """The first waiting request may run now, if nothing of the sequence does."""
        lane = sequence.lane
        if lane is None or sequence.running is not None or not sequence.waiting:
            return
        request = sequence.waiting[0]
        if request in lane.ready:
            return
        self._controls.apply(request)
        if self._states is not None:
            if sequence.memory is None or request.sequence_start:
                sequence.memory = self._states.start()
            sequence.memory.feed(request)
        if lane.order is not None and request not in lane.order:
            lane.order.join(request)
        sequence.ready_since_ns = now_ns
        lane.ready[request] = sequence

    def _pump(self) -> None:
        self._alarm.clear()
        now_ns = self._clock.now_ns()
        self._expire(now_ns)
        self._promote(now_ns)
        self._wake_ns = 0
        if not self._must_hold():
            for lane in self._lanes:
                self._run(lane, now_ns)
        due = (self._wake_ns, self._idle.next_deadline_ns(), self._backlog.next_deadline_ns())
        self._alarm.set(min(filter(None, due), default=0))

    def _run(self, lane: Lane, now_ns: int) -> None:
        if not lane.ready or not self._pool.can_take(lane.host):
            return
        choice = self._rules.choose(lane, now_ns)
        if not choice.requests:
            self._wake_ns = min(self._wake_ns or choice.wait_until_ns, choice.wait_until_ns)
            return
        if not self._pool.take(lane.host):
            return
        rows = self._rules.rows(lane, choice.requests)
        for request in choice.requests:
            self._queue.remove(request)
            lane.ready.pop(request).begin(self._deliver)
        lane.has_run = True
        self._dispatch(lane.host, Batch(rows, len(rows), choice.reason))

    def _must_hold(self) -> bool:
        if not (self._hold_until or self._hold_backlog) or self._is_stopping:
            return False
        behind = self._backlog.request_count + sum(
            len(sequence.waiting) for sequence in self._book.following
        )
        if len(self._queue) - behind < self._hold_until or behind < self._hold_backlog:
            return True
        self._hold_until = self._hold_backlog = 0
        return False

    def _executed(self, host: InstanceHost, batch: Batch) -> None:
        self._count_executed(batch)
        self._pool.release(host)
        for request in batch.rescheduled:
            self._reschedule(request)
        missing: list[Lane] = []
        for request in batch.requests:
            sequence = self._sequence_of.get(request)  # none of a filler, or after abandon
            if sequence is None or sequence.running is not request:
                continue
            sequence.is_executed = True
            if sequence.is_answered:
                self._go_on(sequence)
            elif sequence.lane is not None:
                missing.append(sequence.lane)
        if missing:
            # With the last of these answers the batch's sequences can all go on together.
            missing[0].answers_due += len(missing)
            self._alarm.set(self._clock.now_ns())
        else:
            self._pump()
        self._tell_stopped()

    def _reschedule(self, request: InferenceRequest) -> None:
        sequence = self._sequence_of.get(request)
        if self._ids is None or sequence is None or sequence.running is not request:
            super()._reschedule(request)
            return
        if request.is_cancelled:
            self._answer(request, cancelled(self._model_name, sequence))
            return
        now_ns = self._clock.now_ns()
        sequence.put_back()
        again(request, now_ns)
        request.on_cancel = self._cancel
        self._queue.push(request, now_ns)
        self._offer(sequence, now_ns)

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """`request.deliver` of a request that runs."""
        sequence = self._sequence_of.get(request)
        if sequence is None or sequence.deliver is None:
            return
        if sequence.memory is not None:
            response = sequence.memory.keep(request, response)
        deliver = sequence.deliver
        if response.is_final:
            request.deliver = deliver
            sequence.is_answered = True
            if sequence.is_executed:
                self._go_on_after_answer(sequence)
        deliver(request, response)

    def _go_on_after_answer(self, sequence: Sequence) -> None:
        lane = sequence.lane
        self._go_on(sequence)
        if lane is not None:
            lane.answers_due -= 1
            if not lane.answers_due:
                self._pump()

    def _go_on(self, sequence: Sequence) -> None:
        """What ran is over: the next request, or the end, or idleness."""
        if sequence.running is not None:
            self._sequence_of.pop(sequence.running, None)
        sequence.running = sequence.deliver = None
        now_ns = self._clock.now_ns()
        if not sequence.waiting and self._ids is not None:
            self._seal(sequence, "its request is over")
        if sequence.waiting:
            self._offer(sequence, now_ns)
        elif sequence.end_reason:
            self._close(sequence)
        else:
            self._idle.add(sequence, now_ns)
        self._alarm.set(now_ns)

    def _seal(self, sequence: Sequence, reason: str) -> None:
        """No more requests of this sequence are taken."""
        self._book.seal(sequence, reason, self._clock.now_ns())

    def _close(self, sequence: Sequence) -> None:
        """The sequence is over; nothing of it waits or runs."""
        self._idle.discard(sequence)
        self._backlog.discard(sequence)
        self._lanes.vacate(sequence)
        successor = self._book.close(sequence)
        now_ns = self._clock.now_ns()
        if successor is not None:
            self._seat(successor)
            self._offer(successor, now_ns)
        self._alarm.set(now_ns)
        self._tell_stopped()

    def _promote(self, now_ns: int) -> None:
        while len(self._backlog):
            sequence = self._backlog.first()
            if not self._lanes.place(sequence):
                return
            self._backlog.discard(sequence)
            self._offer(sequence, now_ns)

    def _expire(self, now_ns: int) -> None:
        for sequence in self._idle.expire(now_ns):
            self._seal(
                sequence,
                "it had been idle for longer than max_sequence_idle_microseconds "
                f"({self._idle_us / 1e6:g} s)",
            )
            self._close(sequence)
        for sequence in self._backlog.expire(now_ns):
            self._end(
                sequence,
                timed_out(self._model_name, sequence),
                "it had waited for a free slot for longer than its timeout",
            )

    def _end(self, sequence: Sequence, error: ServingError, reason: str) -> None:
        """Answer what waits with `error`; what runs goes on, and no more."""
        gone = list(sequence.waiting)
        sequence.waiting.clear()
        self._seal(sequence, reason)
        self._drop(sequence, gone, error)

    def _cancel(self, request: InferenceRequest) -> None:
        """`on_cancel` of a waiting request: those behind it cannot go on without it."""
        sequence = self._sequence_of.get(request)
        if sequence is None or request not in sequence.waiting:
            return
        gone, goes_on = sequence.cut(request)
        if not goes_on:
            self._seal(sequence, "one of its requests was cancelled")
        self._drop(sequence, gone, cancelled(self._model_name, sequence))

    def _drop(self, sequence: Sequence, gone: list[InferenceRequest], error: ServingError) -> None:
        """Answer requests that have left the line of their sequence."""
        for request in gone:
            self._queue.remove(request)
            del self._sequence_of[request]
            if sequence.lane is not None:
                sequence.lane.ready.pop(request, None)
        if sequence.waiting:
            self._offer(sequence, self._clock.now_ns())
        elif sequence.running is None:
            self._close(sequence)
        for request in gone:
            self._answer(request, error)

    def _fail_queued(self, error: ServingError) -> None:
        for sequence in list(
            dict.fromkeys([*self._book.open_sequences, *self._sequence_of.values()])
        ):
            self._end(sequence, error, error.message)

    @property
    def _has_work(self) -> bool:
        # Those that began may come to their end: a client cannot take them elsewhere.
        return self.inflight_count > 0 or len(self._book) > 0

    def _on_instance_change(self) -> None:
        for lane in list(self._lanes):
            is_gone = self._lanes.is_gone(lane)
            if is_gone or (lane.has_run and not lane.host.is_ready):
                lane.has_run = False
                self._lose(lane, is_gone=is_gone)
        super()._on_instance_change()

    def _lose(self, lane: Lane, *, is_gone: bool) -> None:
        """The instance has died, and with it what it knew of its sequences. `is_gone`: for good."""
        fresh = []
        for sequence in lane.sequences:
            if not sequence.has_run:
                fresh.append(sequence)
            elif is_gone or self._states is None:
                self._end(
                    sequence,
                    lost(self._model_name, sequence, lane.host.name),
                    f"its instance '{lane.host.name}' ended",
                )
        for sequence in fresh:
            lane.ready.pop(sequence.waiting[0], None)
            self._lanes.vacate(sequence)
        self._backlog.put_back(fresh)
