"""Lends named resources to instances for the time of one execution, across all models.

An instance starts when all of its resources are free: those of its device, or global ones. Who has
waited with the lowest weight (executions x priority) is next; nobody with a higher one is let past
where they need the same resource, so that a large demand is not starved by small ones. Pure
decisions, loop thread only. Behaviour after spec SCH-110..113, REP-095.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.clock import Clock
from serving.config.findings import one_line
from serving.config.protobuf import pb
from serving.config.scheduling import RateLimit
from serving.config.validate_batcher import validate_resources
from serving.errors import InvalidArgumentError

Key = tuple[str, int | None]
"""Resource, in lower case, and device; None for a global one."""

_CREDIT = 16
"""How many turns an instance may make up for that it did not want before."""


@dataclass(slots=True)
class Waits:
    """How often instances of one model had to wait for resources."""

    count: int = 0
    total_ns: int = 0


@dataclass(slots=True, eq=False)
class Claim:
    """One instance, as the limiter knows it."""

    model: str
    instance: str
    needs: Mapping[Key, int]
    priority: int
    config: pb.ModelConfig
    """Of its model, for checks of others."""
    host: Any = None
    """The InstanceHost, once it may execute."""
    on_turn: Callable[[], None] | None = None
    """Called when it may start after it had to wait: start it now, or let the turn pass."""
    weight: int = 0
    is_running: bool = False
    place: int = 0
    """In the order of those who wait; 0: it does not."""
    since_ns: int = 0
    waits: Waits = field(default_factory=Waits)

    @property
    def is_waiting(self) -> bool:
        return self.place > 0


@dataclass(frozen=True, slots=True)
class ResourceUse:
    name: str
    device: int | None
    """None: a global resource."""
    capacity: int
    used: int


class RateLimiter:
    def __init__(self, clock: Clock, limits: Mapping[Key, int] | None = None) -> None:
        """`limits`: explicit counts; without one, a resource is as large as the largest demand."""
        self._clock = clock
        self._limits = {(key[0].lower(), key[1]): count for key, count in (limits or {}).items()}
        self._claims: set[Claim] = set()
        self._capacity: dict[Key, int] = {}
        self._used: dict[Key, int] = {}
        self._reached: dict[Key, int] = {}
        """The weight of the last one that took of a resource: where its users are by now."""
        self._top_priority = 1
        self._waiting: set[Claim] = set()
        self._places = itertools.count(1)
        self._is_wake_due = False

    def __repr__(self) -> str:
        used = [f"{_told(item)} {item.used}/{item.capacity}" for item in self.resources()]
        return f"<RateLimiter {', '.join(used)} waiting={len(self._waiting)}>"

    # Loading

    def check(self, config: pb.ModelConfig) -> None:
        """Raises: InvalidArgumentError where an instance of this model could never start, or names
        a resource in another scope than a model that is loaded (VAL-58, VAL-59).
        """
        others = {claim.model: claim.config for claim in self._claims if claim.model != config.name}
        findings = validate_resources({**others, config.name: config}, self._limits)
        for finding in findings.get(config.name, []):
            raise InvalidArgumentError(f"{finding.field}: {one_line(finding)}")

    def join(
        self, config: pb.ModelConfig, instance: str, limit: RateLimit, device: int
    ) -> Claim | None:
        """For an instance that will execute. None: it needs nothing, so it never waits."""
        needs: dict[Key, int] = {}
        for item in limit.resources:
            key = item.name.lower(), None if item.is_global else device
            needs[key] = max(item.count, needs.get(key, 0))
        if not any(needs.values()):
            return None
        claim = Claim(config.name, instance, needs, limit.priority, config)
        self._claims.add(claim)
        self._measure()
        self._wake_soon()
        return claim

    def leave(self, claim: Claim) -> None:
        """The instance is gone; what it had is free."""
        self._claims.discard(claim)
        self._waiting.discard(claim)
        self._measure()
        if claim.is_running:
            self.finished(claim)
        else:
            self._wake_soon()

    # Executing

    def may_start(self, claim: Claim) -> bool:
        if not claim.is_waiting:
            self._catch_up(claim)
        return self._lacking(claim) is None and not self._is_behind(claim)

    def start(self, claim: Claim) -> bool:
        """Take what the instance needs. False: it has to wait, and `on_turn` will be called."""
        if not self.may_start(claim):
            self.wait(claim)
            return False
        if claim.is_waiting:
            claim.waits.count += 1
            claim.waits.total_ns += self._clock.now_ns() - claim.since_ns
            self.pass_turn(claim)
        claim.is_running = True
        for key, count in claim.needs.items():
            self._used[key] = self._used.get(key, 0) + count
            self._reached[key] = claim.weight
        claim.weight += claim.priority
        return True

    def wait(self, claim: Claim) -> None:
        if claim.is_waiting:
            return
        claim.place = next(self._places)
        claim.since_ns = self._clock.now_ns()
        self._waiting.add(claim)

    def pass_turn(self, claim: Claim) -> None:
        """It waits no longer, because it starts or has nothing to do."""
        claim.place = 0
        self._waiting.discard(claim)

    def finished(self, claim: Claim) -> None:
        """Give back, and let those start whose turn it is."""
        claim.is_running = False
        for key, count in claim.needs.items():
            self._used[key] -= count
        self._wake_soon()

    # Telling

    def resources(self) -> list[ResourceUse]:
        return [
            ResourceUse(name, device, count, self._used.get((name, device), 0))
            for (name, device), count in sorted(self._capacity.items(), key=str)
        ]

    def why_waiting(self, claim: Claim) -> str:
        """Which resource it waits for and who has it; empty while it does not wait."""
        if not claim.is_waiting:
            return ""
        key = self._lacking(claim)
        if key is None:
            return f"instance '{claim.instance}' waits for its turn"
        use = ResourceUse(*key, self._capacity.get(key, 0), self._used.get(key, 0))
        owners = {item.model for item in self._claims if item.is_running and key in item.needs}
        return (
            f"instance '{claim.instance}' waits for {claim.needs[key]} of resource {_told(use)}: "
            f"{use.used} of {use.capacity} are in use by {', '.join(sorted(owners))}"
        )

    def holders(self, claim: Claim) -> list[Any]:
        """Hosts that execute with a resource which this one needs."""
        return [other.host for other in self._holding(claim)]

    def may_ever_start(self, claim: Claim, is_stuck: Callable[[Any], bool]) -> bool:
        """Whether there are enough resources without those of hosts that are stuck."""
        stuck = [other for other in self._holding(claim) if is_stuck(other.host)]
        return all(
            count + sum(other.needs.get(key, 0) for other in stuck) <= self._capacity.get(key, 0)
            for key, count in claim.needs.items()
        )

    # Decisions

    def _holding(self, claim: Claim) -> list[Claim]:
        return [
            other
            for other in self._claims
            if other is not claim
            and other.is_running
            and not claim.needs.keys().isdisjoint(other.needs)
        ]

    def _lacking(self, claim: Claim) -> Key | None:
        for key, count in claim.needs.items():
            if self._used.get(key, 0) + count > self._capacity.get(key, 0):
                return key
        return None

    def _is_behind(self, claim: Claim) -> bool:
        """Somebody else who waits is before it and needs one of its resources."""
        rank = _rank(claim)
        return any(
            other is not claim
            and _rank(other) < rank
            and not claim.needs.keys().isdisjoint(other.needs)
            for other in self._waiting
        )

    def _next(self) -> Claim | None:
        """The first of those who wait and may start."""
        spoken_for: set[Key] = set()
        for claim in sorted(self._waiting, key=_rank):
            if self._lacking(claim) is None and spoken_for.isdisjoint(claim.needs):
                return claim
            spoken_for.update(claim.needs)
        return None

    def _wake_soon(self) -> None:
        """In the next turn of the loop: whoever gives back is in the middle of something."""
        if self._waiting and not self._is_wake_due:
            self._is_wake_due = True
            self._clock.call_at(self._clock.now_ns(), self._wake)

    def _wake(self) -> None:
        self._is_wake_due = False
        while (claim := self._next()) is not None:
            if claim.on_turn is not None:
                claim.on_turn()
            # Who has nothing to do, or started by another instance, holds up nobody.
            self.pass_turn(claim)

    def _catch_up(self, claim: Claim) -> None:
        """Who is new or was idle gets no endless row of turns at the expense of the others."""
        reached = max(self._reached.get(key, 0) for key in claim.needs)
        claim.weight = max(claim.weight, reached - _CREDIT * self._top_priority)

    def _measure(self) -> None:
        """Capacities: explicit, or the largest demand of an instance that is there."""
        demands: dict[Key, int] = {}
        for claim in self._claims:
            for key, count in claim.needs.items():
                demands[key] = max(count, demands.get(key, 0))
        self._capacity = {key: self._limit_of(key, count) for key, count in demands.items()}
        self._reached = {key: self._reached.get(key, 0) for key in demands}
        self._top_priority = max((claim.priority for claim in self._claims), default=1)

    def _limit_of(self, key: Key, demand: int) -> int:
        name, device = key
        limit = self._limits.get(key)
        if limit is None and device is not None:
            limit = self._limits.get((name, None))
        return demand if limit is None else limit


def _rank(claim: Claim) -> tuple[int, float]:
    return claim.weight, claim.place or float("inf")


def _told(use: ResourceUse) -> str:
    return f"'{use.name}'" if use.device is None else f"'{use.name}' of device {use.device}"


def parse_resource(text: str) -> tuple[Key, int]:
    """`<name>:<count>` or `<name>:<count>:<device>`. Raises InvalidArgumentError."""
    parts = [part.strip() for part in text.split(":")]
    numbers = parts[1:]
    is_number = all(part.isascii() and part.isdigit() and len(part) <= 9 for part in numbers)
    if len(parts) not in (2, 3) or not parts[0] or not is_number:
        raise InvalidArgumentError(
            "expects <name>:<count> or <name>:<count>:<device>, whole numbers from 0, as in R1:4 "
            "or R1:4:0"
        )
    device = int(parts[2]) if len(parts) == 3 else None
    return (parts[0].lower(), device), int(parts[1])


def parse_mode(text: str) -> bool:
    """Whether the limiter is on. Raises InvalidArgumentError."""
    modes = {"off": False, "execution_count": True}
    if text.strip().lower() not in modes:
        raise InvalidArgumentError("expects off or execution_count")
    return modes[text.strip().lower()]


def limits_of(resources: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    """Raises InvalidArgumentError where one resource has two counts."""
    limits: dict[Key, int] = {}
    for key, count in resources:
        if limits.setdefault(key, count) != count:
            device = "" if key[1] is None else f" of device {key[1]}"
            raise InvalidArgumentError(
                f"resource '{key[0]}'{device} is given as {limits[key]} and as {count}; give each "
                "resource once, upper and lower case are one"
            )
    return limits
