"""The waiting requests of one scheduler: priority levels, and for each level a queue policy.

Order of service: level by level (1 is the highest), inside a level first in first out, and behind
them those whose time ran out under timeout_action DELAY. Every operation is O(1) or O(log n); a
request that leaves (cancelled, expired) is gone at once. Nothing here looks at a clock: callers
pass the time in. Loop thread only. Behaviour after spec SCH-035..041.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from serving.config.decode import QueuePolicy
from serving.errors import QueueRejectedError
from serving.request import InferenceRequest

_DEADLINE_SLACK = 64
_NO_POLICY = QueuePolicy()


class _Level:
    __slots__ = ("delayed", "policy", "waiting")

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.waiting: OrderedDict[InferenceRequest, None] = OrderedDict()
        self.delayed: OrderedDict[InferenceRequest, None] = OrderedDict()

    @property
    def size(self) -> int:
        return len(self.waiting) + len(self.delayed)


class RequestQueue:
    def __init__(
        self,
        model_name: str,
        *,
        priority_levels: int = 0,
        default_level: int = 0,
        default_policy: QueuePolicy = _NO_POLICY,
        level_policies: Mapping[int, QueuePolicy] | None = None,
    ) -> None:
        self._model_name = model_name
        self._priority_levels = priority_levels
        self._default_level = default_level
        self._default_policy = default_policy
        self._level_policies = dict(level_policies or {})
        self._levels: dict[int, _Level] = {}
        self._order: list[int] = []
        self._level_of: dict[InferenceRequest, _Level] = {}
        self.present: Mapping[InferenceRequest, object] = self._level_of
        """Those that wait. Whether there are any is asked for every request, and `len` is slow."""
        self._deadlines: list[tuple[int, int, InferenceRequest]] = []
        self._pushed = 0
        self.batch_items = 0
        """Sum of the batch sizes of what waits."""

    def __repr__(self) -> str:
        levels = " ".join(
            f"{number}:{len(self._levels[number].waiting)}+{len(self._levels[number].delayed)}"
            for number in self._order
            if self._levels[number].size
        )
        return f"<RequestQueue {len(self)} waiting+delayed by level [{levels}]>"

    def __len__(self) -> int:
        return len(self._level_of)

    def __contains__(self, request: object) -> bool:
        return request in self._level_of

    def __iter__(self) -> Iterator[InferenceRequest]:
        """In order of service."""
        for number in self._order:
            level = self._levels[number]
            yield from level.waiting
            yield from level.delayed

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Raises: QueueRejectedError when the request's level is full."""
        number = self._level_number(request.priority) if self._priority_levels else 0
        level = self._levels.get(number) or self._add_level(number)
        policy = level.policy
        limit = policy.max_queue_size
        if limit and level.size >= limit:
            at_level = f" at priority level {number}" if self._priority_levels else ""
            raise QueueRejectedError(
                f"Exceeds maximum queue size: {limit} requests wait for model "
                f"'{self._model_name}'{at_level} already; send it again later, or raise "
                "max_queue_size in the model's queue policy"
            )
        level.waiting[request] = None
        self._level_of[request] = level
        self.batch_items += request.batch_size
        if policy.default_timeout_us:
            deadline_ns = _deadline_ns(policy, request.timeout_us, now_ns)
            self._pushed += 1
            heapq.heappush(self._deadlines, (deadline_ns, self._pushed, request))
            self._forget_stale_deadlines()

    def put_back(self, request: InferenceRequest) -> None:
        """A request that had left is the first of its level again; no limit holds it up now."""
        number = self._level_number(request.priority) if self._priority_levels else 0
        level = self._levels.get(number) or self._add_level(number)
        level.waiting[request] = None
        level.waiting.move_to_end(request, last=False)
        self._level_of[request] = level
        self.batch_items += request.batch_size

    def remove(self, request: InferenceRequest) -> None:
        """The request leaves: it will execute, or was answered. Raises KeyError if not here."""
        level = self._level_of.pop(request)
        waiting = level.waiting if request in level.waiting else level.delayed
        del waiting[request]
        self.batch_items -= request.batch_size

    def pop_first(self) -> InferenceRequest:
        """The next one in order of service leaves. Raises IndexError when nothing waits."""
        for number in self._order:
            level = self._levels[number]
            for waiting in (level.waiting, level.delayed):
                if waiting:
                    request, _ = waiting.popitem(last=False)
                    del self._level_of[request]
                    self.batch_items -= request.batch_size
                    return request
        raise IndexError("nothing waits")

    def expire(self, now_ns: int) -> list[InferenceRequest]:
        """Apply timeout_action to every request whose time is up.

        Returns: the requests that left the queue (REJECT); the caller answers them. Those with
        DELAY moved behind.
        """
        rejected = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, _, request = heapq.heappop(self._deadlines)
            level = self._level_of.get(request)
            if level is None:
                continue
            if level.policy.timeout_action_delay:
                level.waiting.pop(request)
                level.delayed[request] = None
            else:
                self.remove(request)
                rejected.append(request)
        return rejected

    def next_deadline_ns(self) -> int:
        """When `expire` has something to do; 0 for never."""
        while self._deadlines and self._deadlines[0][2] not in self._level_of:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else 0

    def _level_number(self, priority: int) -> int:
        return priority if 1 <= priority <= self._priority_levels else self._default_level

    def _add_level(self, number: int) -> _Level:
        level = _Level(self._level_policies.get(number, self._default_policy))
        self._levels[number] = level
        insort(self._order, number)
        return level

    def _forget_stale_deadlines(self) -> None:
        """Entries of requests that left early would keep their tensors alive until the deadline."""
        if len(self._deadlines) > 2 * len(self._level_of) + _DEADLINE_SLACK:
            self._deadlines = [item for item in self._deadlines if item[2] in self._level_of]
            heapq.heapify(self._deadlines)


def _deadline_ns(policy: QueuePolicy, request_timeout_us: int, now_ns: int) -> int:
    """For a policy that has a timeout."""
    timeout_us = policy.default_timeout_us
    # A request may shorten the limit, never lengthen it or bring one in.
    if policy.allow_timeout_override and 0 < request_timeout_us < timeout_us:
        timeout_us = request_timeout_us
    return now_ns + timeout_us * 1000
