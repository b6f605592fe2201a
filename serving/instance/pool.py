"""The instances of one model version: which are idle, and who is told when one becomes idle.

Instances take turns: the one idle for longest comes first. Who needs one in particular takes that
one, and keeps it for as long as something is bound to it. With a rate limiter, an instance is taken
when its resources are free, and `on_idle` also says that they are. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from serving.errors import ServingError
from serving.instance.base import InstanceHost
from serving.instance.turns import Turns
from serving.rate_limiter import Claim


class InstancePool:
    def __init__(
        self,
        hosts: Sequence[InstanceHost],
        passive: Sequence[InstanceHost] = (),
        turns: Turns | None = None,
    ) -> None:
        self.hosts = list(hosts)
        self.passive = list(passive)
        """Loaded, but never given work (instance group with `passive`)."""
        self.on_idle: Callable[[], None] | None = None
        """Set by the scheduler: an instance can take work again."""
        self._idle = deque(self.hosts)
        self._busy: set[InstanceHost] = set()
        self._kept: set[InstanceHost] = set()
        self.ahead: InstanceHost | None = None
        """Has one more batch behind the one that it executes."""
        self.turns = turns
        """None where no rate limiter is on."""
        self._leaving: dict[InstanceHost, asyncio.Future[None]] = {}
        """Removed while they executed or were kept -> told when they have finished."""
        self.change_count = 0
        """Grows whenever an instance comes or goes."""

    def __repr__(self) -> str:
        return f"<InstancePool idle={len(self._idle)} busy={len(self._busy)}>"

    async def start(self) -> None:
        """Start all instances at once. Raises the first ServingError when all have settled."""
        everyone = [*self.hosts, *self.passive]
        for host in everyone:
            host.on_state_change = self._on_state_change
        results = await asyncio.gather(*(host.start() for host in everyone), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                await self.stop()
                raise result

    async def stop(self) -> None:
        results = await asyncio.gather(
            *(host.stop() for host in [*self.hosts, *self.passive]), return_exceptions=True
        )
        for host in self.hosts:
            self._give_back(host)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ServingError):
                raise result

    def abandon(self, error: ServingError) -> list[str]:
        """Wait for no instance any longer. Returns the names of those whose work goes on."""
        hosts = [*self.hosts, *self.passive, *self._leaving]
        for host in hosts:
            self._give_back(host)
        return [host.name for host in hosts if not host.abandon(error)]

    def limit(self, host: InstanceHost, claim: Claim | None) -> None:
        """The instance executes within the rate limiter; before it is added."""
        if self.turns is not None and claim is not None:
            self.turns.add(host, claim, self._on_state_change)

    def add(self, host: InstanceHost, *, passive: bool = False) -> None:
        """Take in an instance that has started."""
        self.change_count += 1
        host.on_state_change = self._on_state_change
        if passive:
            self.passive.append(host)
            return
        self.hosts.append(host)
        self._idle.append(host)
        self._on_state_change()

    def remove(self, host: InstanceHost) -> asyncio.Future[None]:
        """No more work for this instance; the future is done when its batch is, and nobody keeps
        it any longer.
        """
        self.change_count += 1
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if host in self._busy or host in self._kept:
            self.hosts.remove(host)
            if host not in self._busy:
                self._idle.remove(host)
            self._leaving[host] = finished
            return finished
        if host in self.passive:
            self.passive.remove(host)
        else:
            self.hosts.remove(host)
            self._idle.remove(host)
        self._give_back(host)
        finished.set_result(None)
        return finished

    def is_busy(self, host: InstanceHost) -> bool:
        """It executes, or something is bound to it."""
        return host in self._busy or host in self._kept

    @property
    def has_idle(self) -> bool:
        """An instance can take work now."""
        turns = self.turns
        # For every request; any() over a generator costs three times as much.
        for host in self._idle:
            if host.is_ready and (turns is None or turns.may_start(host)):
                return True
        return False

    @property
    def idle_count(self) -> int:
        return sum(host.is_ready for host in self._idle)

    @property
    def busy_count(self) -> int:
        return len(self._busy)

    @property
    def unready_reason(self) -> str:
        """Empty while at least one instance can execute."""
        reasons = []
        for host in self.hosts:
            if host.is_ready:
                return ""
            reasons.append(host.unready_reason or f"instance '{host.name}' is not ready")
        return "; ".join(reasons) or "the model has no instance that executes"

    @property
    def has_failed(self) -> bool:
        """No instance executes, and none will come back by itself."""
        # For every request, as above.
        for host in self.hosts:  # noqa: SIM110
            if not host.has_failed:
                return False
        return True

    def want_turn(self) -> None:
        """There is work: let `on_idle` say when an idle instance has its resources."""
        if self.turns is None or self.has_idle:
            return
        for host in self._idle:
            if host.is_ready:
                self.turns.wait(host)

    def acquire(self) -> InstanceHost | None:
        """An idle, ready instance, which then belongs to the caller until `release`.

        None: there is none now, and `on_idle` says when to ask again.
        """
        if self.turns is not None:
            return self._acquire_in_turn(self.turns)
        for _ in range(len(self._idle)):
            host = self._idle.popleft()
            if host.is_ready:
                self._busy.add(host)
                return host
            self._idle.append(host)
        return None

    @property
    def takes_ahead(self) -> bool:
        """No instance is idle, but `acquire_ahead` has one.

        Only where there is a single one. Of several, another might be free sooner, or the one that
        executes might wait for the very request that was put behind it.
        """
        return (
            self.ahead is None
            and len(self.hosts) == 1
            and self.turns is None
            and self.hosts[0] in self._busy
            and self.hosts[0].takes_ahead
        )

    def acquire_ahead(self) -> InstanceHost | None:
        """The instance, while it executes: it is the caller's for one more batch behind that one,
        until `release` has been called once more. None: it takes none now.
        """
        if not self.takes_ahead:
            return None
        self.ahead = self.hosts[0]
        return self.ahead

    def _acquire_in_turn(self, turns: Turns) -> InstanceHost | None:
        host = turns.start_one_of([host for host in self._idle if host.is_ready])
        if host is not None:
            self._idle.remove(host)
            self._busy.add(host)
        return host

    def can_take(self, host: InstanceHost) -> bool:
        """Whether `take` would succeed. Where it lacks but resources, `on_idle` says when."""
        if host in self._busy or not host.is_ready:
            return False
        if self.turns is None or self.turns.may_start(host):
            return True
        self.turns.wait(host)
        return False

    def take(self, host: InstanceHost) -> bool:
        """This very instance, until `release`; False when it cannot execute now.

        One that was removed can be taken by whoever keeps it.
        """
        if not self.can_take(host) or (self.turns is not None and not self.turns.start(host)):
            return False
        if host not in self._leaving:
            self._idle.remove(host)
        self._busy.add(host)
        return True

    def keep(self, host: InstanceHost) -> None:
        """Something is bound to this instance: if it is removed, it stays until `let_go`."""
        self._kept.add(host)

    def let_go(self, host: InstanceHost) -> None:
        self._kept.discard(host)
        if host not in self._busy:
            self._leave(host)

    def release(self, host: InstanceHost) -> None:
        if host is self.ahead:
            self.ahead = None
            return
        self._busy.discard(host)
        if self.turns is not None:
            self.turns.finished(host)
        if not self._leaving or host not in self._leaving:
            self._idle.append(host)
        elif host not in self._kept:
            self._leave(host)

    def _give_back(self, host: InstanceHost) -> None:
        """It executes no more, and other models may have its resources."""
        if self.turns is not None:
            self.turns.leave(host)

    def _leave(self, host: InstanceHost) -> None:
        finished = self._leaving.pop(host, None)
        if finished is None:
            return
        self._give_back(host)
        if not finished.done():
            finished.set_result(None)

    def _on_state_change(self) -> None:
        if self.on_idle is not None:
            self.on_idle()
