"""The instances of one model version: which are idle, and who is told when one becomes idle.

Instances take turns: the one idle for longest comes first. Who needs one in particular takes that
one, and keeps it for as long as something is bound to it. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from serving.errors import ServingError
from serving.instance.base import InstanceHost


class InstancePool:
    def __init__(self, hosts: Sequence[InstanceHost], passive: Sequence[InstanceHost] = ()) -> None:
        self.hosts = list(hosts)
        self.passive = list(passive)
        """Loaded, but never given work (instance group with `passive`)."""
        self.on_idle: Callable[[], None] | None = None
        """Set by the scheduler: an instance can take work again."""
        self._idle = deque(self.hosts)
        self._busy: set[InstanceHost] = set()
        self._kept: set[InstanceHost] = set()
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
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ServingError):
                raise result

    def abandon(self, error: ServingError) -> list[str]:
        """Wait for no instance any longer. Returns the names of those whose work goes on."""
        hosts = [*self.hosts, *self.passive, *self._leaving]
        return [host.name for host in hosts if not host.abandon(error)]

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
        finished.set_result(None)
        return finished

    def is_busy(self, host: InstanceHost) -> bool:
        return host in self._busy

    @property
    def has_idle(self) -> bool:
        # For every request; any() over a generator costs three times as much.
        for host in self._idle:  # noqa: SIM110
            if host.is_ready:
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

    def acquire(self) -> InstanceHost | None:
        """An idle, ready instance, which then belongs to the caller until `release`."""
        for _ in range(len(self._idle)):
            host = self._idle.popleft()
            if host.is_ready:
                self._busy.add(host)
                return host
            self._idle.append(host)
        return None

    def can_take(self, host: InstanceHost) -> bool:
        """Whether `take` would succeed."""
        return host not in self._busy and host.is_ready

    def take(self, host: InstanceHost) -> bool:
        """This very instance, until `release`; False when it cannot execute now.

        One that was removed can be taken by whoever keeps it.
        """
        if not self.can_take(host):
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
        self._busy.discard(host)
        if not self._leaving or host not in self._leaving:
            self._idle.append(host)
        elif host not in self._kept:
            self._leave(host)

    def _leave(self, host: InstanceHost) -> None:
        finished = self._leaving.pop(host, None)
        if finished is not None and not finished.done():
            finished.set_result(None)

    def _on_state_change(self) -> None:
        if self.on_idle is not None:
            self.on_idle()
