"""The requests that an instance process has and has not answered for good, by number on the wire.

Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from serving.instance.base import Batch
from serving.request import InferenceRequest


class RunningRequests:
    def __init__(self) -> None:
        self._next = 0
        self._by_number: dict[int, InferenceRequest] = {}
        self.by_number: Mapping[int, InferenceRequest] = self._by_number
        self._waiters: list[asyncio.Future[None]] = []

    async def drained(self) -> None:
        """Wait until every request has been answered for good."""
        while self._by_number:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def tell(self) -> None:
        """Answers have been delivered: those who wait may go on when none is left."""
        if not self._by_number and self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, request: InferenceRequest) -> int:
        number = self._next
        self._next += 1
        self._by_number[number] = request
        return number

    def get(self, number: int) -> InferenceRequest | None:
        return self._by_number.get(number)

    def pop(self, number: int) -> InferenceRequest | None:
        return self._by_number.pop(number, None)

    def was_given(self, number: int) -> bool:
        """The number belongs to a request, even if it is over."""
        return number in range(self._next)

    def number_of(self, request: InferenceRequest) -> int | None:
        for number, running in self._by_number.items():
            if running is request:
                return number
        return None

    def take(self, batch: Batch) -> list[InferenceRequest]:
        """Those of the batch that are left; they are not running any more."""
        wanted = set(batch.requests)
        numbers = [number for number, item in self._by_number.items() if item in wanted]
        return [self._by_number.pop(number) for number in numbers]

    def take_numbers(self, numbers: Iterable[int]) -> list[InferenceRequest]:
        """Those that run under these numbers; they are not running any more."""
        taken = [self._by_number.pop(number, None) for number in numbers]
        left = [request for request in taken if request is not None]
        for request in left:
            request.on_cancel = None
        return left

    def take_all(self) -> list[InferenceRequest]:
        taken = list(self._by_number.values())
        self._by_number.clear()
        return taken

    def among(self, numbers: Iterable[int], batch: Collection[InferenceRequest]) -> bool:
        """Whether one of the numbers is a request of the batch that has no answer yet."""
        return any(self._by_number.get(number) in batch for number in numbers)
