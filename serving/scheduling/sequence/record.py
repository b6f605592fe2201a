"""One sequence: what waits of it, what runs, and where it has its place. Loop thread only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving.request import InferenceRequest
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.scheduling.sequence.lanes import Lane
    from serving.scheduling.sequence.state import SequenceMemory

Deliver = Callable[[InferenceRequest, InferenceResponse], None]


@dataclass(slots=True, eq=False)
class Sequence:
    id: int | str
    waiting: deque[InferenceRequest] = field(default_factory=deque)
    """In order of arrival; the first one runs next."""
    lane: Lane | None = None
    """None while the sequence stands in the backlog, and after its end."""
    row: int = 0
    running: InferenceRequest | None = None
    is_executed: bool = False
    """The execution of `running` has ended."""
    is_answered: bool = False
    """`running` has had its final response."""
    deliver: Deliver | None = None
    """Where the responses of `running` go."""
    end_reason: str = ""
    """Why no more requests of it are taken; empty while they are."""
    is_over: bool = False
    """Nothing of it waits or runs any more, and nothing will."""
    successor: Sequence | None = None
    """Has the same id, and begins when this one is over."""
    has_run: bool = False
    """The model knows of it."""
    ready_since_ns: int = 0
    """When the first waiting request became the next one to run."""
    memory: SequenceMemory | None = None
    """Its implicit state; None before the first request, and for models without."""

    def __repr__(self) -> str:
        place = "backlog" if self.lane is None else f"{self.lane.host.name}[{self.row}]"
        running = " running" if self.running is not None else ""
        return f"<Sequence {self.id!r} {place} waiting={len(self.waiting)}{running}>"

    def begin(self, answer: Deliver) -> InferenceRequest:
        """The first waiting request runs now; `answer` gets its responses."""
        request = self.waiting.popleft()
        self.running = request
        self.has_run = True
        self.is_executed = self.is_answered = False
        self.deliver, request.deliver = request.deliver, answer
        return request

    def put_back(self) -> None:
        """What runs is to run once more, before all that waits."""
        assert self.running is not None
        self.running.deliver = self.deliver
        self.waiting.appendleft(self.running)
        self.running = self.deliver = None

    def next_successor(self) -> Sequence | None:
        """The first of those that follow and have not been given up meanwhile."""
        successor = self.successor
        while successor is not None and successor.is_over:
            successor = successor.successor
        return successor

    def cut(self, request: InferenceRequest) -> tuple[list[InferenceRequest], bool]:
        """Take `request` and what cannot go on without it out of the line.

        Returns: those requests, and whether the sequence starts again behind them.
        """
        line = list(self.waiting)
        first = line.index(request)
        rest = (number for number in range(first + 1, len(line)) if line[number].sequence_start)
        last = next(rest, len(line))
        self.waiting = deque(line[:first] + line[last:])
        return line[first:last], last < len(line)
