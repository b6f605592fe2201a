"""The instances of one model before the rate limiter: which may start, and what they have taken.

Loop thread only. An instance that needs no resource has no claim and always may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from serving.instance.base import InstanceHost
from serving.rate_limiter import Claim, RateLimiter, Waits


class Turns:
    def __init__(self, limiter: RateLimiter) -> None:
        self.waits = Waits()
        self.limiter = limiter
        self._claims: dict[InstanceHost, Claim] = {}

    def __repr__(self) -> str:
        return f"<Turns claims={len(self._claims)} waiting={self.waiting_count}>"

    def add(self, host: InstanceHost, claim: Claim, on_turn: Callable[[], None]) -> None:
        claim.waits, claim.on_turn, claim.host = self.waits, on_turn, host
        self._claims[host] = claim

    def leave(self, host: InstanceHost) -> None:
        claim = self._claims.pop(host, None)
        if claim is not None:
            self.limiter.leave(claim)

    def claim_of(self, host: InstanceHost) -> Claim | None:
        """None: it needs nothing."""
        return self._claims.get(host)

    @property
    def waiting_count(self) -> int:
        """Instances that have work and no resources for it."""
        return sum(claim.is_waiting for claim in self._claims.values())

    @property
    def reason(self) -> str:
        """What they wait for; empty where none does."""
        reasons = map(self.limiter.why_waiting, self._claims.values())
        return "; ".join(filter(None, reasons))

    def as_json(self) -> dict[str, Any]:
        waits = {"count": self.waits.count, "ns": self.waits.total_ns}
        return {"waits": waits, "waiting": self.waiting_count, "reason": self.reason}

    def may_start(self, host: InstanceHost) -> bool:
        claim = self._claims.get(host)
        return claim is None or self.limiter.may_start(claim)

    def start(self, host: InstanceHost) -> bool:
        """Take its resources. False: it waits for them, and `on_turn` follows."""
        claim = self._claims.get(host)
        if claim is None:
            return True
        return self.limiter.start(claim)

    def start_one_of(self, hosts: Sequence[InstanceHost]) -> InstanceHost | None:
        """Whichever can; None: all of them wait. The one that has had the fewest turns is first."""
        ranked = sorted(hosts, key=self._weight)
        for host in ranked:
            if self.may_start(host) and self.start(host):
                # The others had waited for the same work; they ask again if there is more.
                for claim in self._claims.values():
                    self.limiter.pass_turn(claim)
                return host
        for host in ranked:
            self.wait(host)
        return None

    def wait(self, host: InstanceHost) -> None:
        claim = self._claims.get(host)
        if claim is not None:
            self.limiter.wait(claim)

    def finished(self, host: InstanceHost) -> None:
        claim = self._claims.get(host)
        if claim is not None:
            self.limiter.finished(claim)

    def _weight(self, host: InstanceHost) -> int:
        claim = self._claims.get(host)
        return 0 if claim is None else claim.weight
