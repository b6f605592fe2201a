"""Whether a call of a model by another one can ever be answered, or waits for its own caller.

An instance that executes becomes free when all calls are answered that its execution waits for; one
that waits for resources of the rate limiter, when those who have them become free. What is left
when nothing more becomes free waits for itself. Pure decisions, loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from serving.instance.base import InstanceHost
from serving.rate_limiter import Claim, RateLimiter
from serving.request import InferenceRequest
from serving.services import ServedModel


class Waiting(Protocol):
    """A call that has no answer yet."""

    request: InferenceRequest
    model: ServedModel | None
    """None while that is not known: then nothing is held against it."""


@dataclass(frozen=True, slots=True)
class _Need:
    """One of the instances of `model` has to become free."""

    model: ServedModel
    host: InstanceHost | None
    """The very one that executes the request already."""


def stuck_at(call: Waiting) -> str:
    """A model that has no instance which could become free before the answer; empty: there is a
    way."""
    return _Search(call).stuck


class _Search:
    def __init__(self, call: Waiting) -> None:
        self._needs_of: dict[InstanceHost, list[_Need]] = {}
        """What an instance waits for, of all that may have a part in it."""
        self._turns: dict[InstanceHost, tuple[RateLimiter, Claim]] = {}
        """Of those that need resources."""
        self._free: set[InstanceHost] = set()
        needs = list(_needs(call.model, call.request))
        self._reach(needs)
        while more := [host for host in self._needs_of if self._becomes_free(host)]:
            self._free.update(more)
        self.stuck = next((need.model.name for need in needs if not self._is_met(need)), "")

    def _reach(self, needs: Iterable[_Need]) -> None:
        waiting = list(needs)
        while waiting:
            model = waiting.pop().model
            for host in model.hosts:
                claim = None if model.turns is None else model.turns.claim_of(host)
                if model.turns is not None and claim is not None:
                    self._turns[host] = model.turns.limiter, claim
                    for holder in model.turns.limiter.holders(claim):
                        waiting += self._look_at(holder)
                waiting += self._look_at(host)

    def _look_at(self, host: InstanceHost) -> list[_Need]:
        """What it waits for, the first time."""
        if host in self._needs_of:
            return []
        found = [need for call in _waits(host) for need in _needs(call.model, call.request)]
        self._needs_of[host] = found
        return found

    def _becomes_free(self, host: InstanceHost) -> bool:
        if host in self._free or not all(map(self._is_met, self._needs_of[host])):
            return False
        limiter, claim = self._turns.get(host, (None, None))
        return limiter is None or claim is None or limiter.may_ever_start(claim, self._is_stuck)

    def _is_stuck(self, host: InstanceHost) -> bool:
        return host in self._needs_of and host not in self._free

    def _is_met(self, need: _Need) -> bool:
        hosts = need.model.hosts if need.host is None else (need.host,)
        return not hosts or any(host in self._free for host in hosts)


def _needs(model: ServedModel | None, request: InferenceRequest | None) -> Iterator[_Need]:
    """`request`: None where the model has not been asked yet, but will be."""
    if model is None or (request is None and model.spec.response_cache):
        return  # its answer may come out of the cache
    if model.ensemble is not None:
        for part, asked in model.ensemble.awaits(request):
            yield from _needs(part, asked)
        return
    executing = (host for host in model.hosts if request and _executes(host, request))
    yield _Need(model, next(executing, None))


def _waits(host: InstanceHost) -> Sequence[Waiting]:
    waits: Sequence[Waiting] = getattr(host, "waits_for", ())
    return waits


def _executes(host: InstanceHost, request: InferenceRequest) -> bool:
    executes = getattr(host, "executes", None)
    return executes is not None and executes(request)
