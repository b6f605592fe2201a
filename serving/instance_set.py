"""The instances of one model version: made from its instance groups, changed while it serves.

An instance is known by its signature: what its group says but for name and count. A change keeps
instances whose signature is still wanted, starts those that are missing, and lets go of the
surplus, idle ones first. Loop thread only. Source: spec REP-090..094.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from serving import model_hosts
from serving.backends.base import Backend, LoadedModel, ModelContext
from serving.config.protobuf import pb
from serving.errors import ServingError, UnavailableError
from serving.instance.base import InstanceHost
from serving.instance.pool import InstancePool
from serving.instance.turns import Turns
from serving.model_hosts import Signature, Slot
from serving.services import ModelServices

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Member:
    host: InstanceHost
    slot: Slot
    config: pb.ModelConfig

    @property
    def signature(self) -> Signature:
        return self.slot.signature


class InstanceSet:
    def __init__(
        self,
        context: ModelContext,
        backend: Backend,
        loaded: LoadedModel | None,
        services: ModelServices,
    ) -> None:
        self._backend = backend
        self._loaded = loaded
        self._services = services
        self._members = [
            self._member(context, slot) for slot in model_hosts.slots(context, backend)
        ]
        self.pool = InstancePool(
            [item.host for item in self._members if not item.signature.is_passive],
            [item.host for item in self._members if item.signature.is_passive],
            None if services.limiter is None else Turns(services.limiter),
        )
        for member in self._members:
            self._limit(member)

    def __repr__(self) -> str:
        return f"<InstanceSet {self.pool!r}>"

    def change_to(
        self, context: ModelContext, on_commit: Callable[[], None], drain_timeout_s: float = 600.0
    ) -> InstanceChange:
        """What it takes to come to the instance groups of `context`; nothing has started yet."""
        wanted = model_hosts.slots(context, self._backend)
        there = Counter(member.signature for member in self._members)
        names = {member.host.name for member in self._members}
        missing = []
        for slot in wanted:
            if there[slot.signature]:
                there[slot.signature] -= 1
            else:
                slot = slot.named_apart_from(names)
                names.add(slot.placement.instance_name)
                missing.append(slot)
        members = [self._member(context, slot) for slot in missing]
        return InstanceChange(self, members, wanted, on_commit, drain_timeout_s)

    def take(self, added: Sequence[_Member], wanted: Sequence[Slot]) -> list[_Member]:
        """Route to `added`, and no longer to what `wanted` has no place for: that is returned."""
        for member in added:
            self._members.append(member)
            self._limit(member)
            self.pool.add(member.host, passive=member.signature.is_passive)
        places = Counter(slot.signature for slot in wanted)
        kept, surplus = [], []
        # Those that stay come first: at work, then idle and well; what has died goes first.
        for member in sorted(self._members, key=self._worth, reverse=True):
            if places[member.signature]:
                places[member.signature] -= 1
                kept.append(member)
            else:
                surplus.append(member)
        self._members = kept
        return surplus

    def _worth(self, member: _Member) -> tuple[bool, bool]:
        return member.host.is_ready, self.pool.is_busy(member.host)

    def _member(self, context: ModelContext, slot: Slot) -> _Member:
        host = model_hosts.create(
            context, self._backend, self._loaded, slot.placement, self._services
        )
        return _Member(host, slot, context.config)

    def _limit(self, member: _Member) -> None:
        """From now on its demands count, and it starts within them."""
        limiter, slot = self._services.limiter, member.slot
        if limiter is not None and not member.signature.is_passive:
            name, device = member.host.name, slot.placement.device_id
            claim = limiter.join(member.config, name, slot.limit, device)
            self.pool.limit(member.host, claim)


class InstanceChange:
    """One change of an InstanceSet: `start`, then `commit` or `abandon`."""

    def __init__(
        self,
        instances: InstanceSet,
        added: list[_Member],
        wanted: list[Slot],
        on_commit: Callable[[], None],
        drain_timeout_s: float,
    ) -> None:
        self._instances = instances
        self._drain_timeout_s = drain_timeout_s
        self._added = added
        self._wanted = wanted
        self._on_commit = on_commit

    @property
    def hosts(self) -> list[InstanceHost]:
        """The new ones."""
        return [member.host for member in self._added]

    async def start(self) -> None:
        """Raises the first ServingError when all have settled; `abandon` it then."""
        results = await asyncio.gather(
            *(host.start() for host in self.hosts), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def commit(self) -> Coroutine[Any, Any, None]:
        """The new ones take requests, the surplus gets none from now on.

        The result is to be awaited: it ends when the surplus has finished and closed, or when its
        time is over.
        """
        surplus = self._instances.take(self._added, self._wanted)
        self._on_commit()
        pool = self._instances.pool
        leaving = [(member.host, pool.remove(member.host)) for member in surplus]
        return _retire(leaving, self._drain_timeout_s)

    async def abandon(self) -> None:
        await _stop(self.hosts)


async def _retire(
    leaving: Sequence[tuple[InstanceHost, asyncio.Future[None]]], timeout_s: float
) -> None:
    """Each one is stopped as soon as it has finished, whatever the others do."""

    async def retire(host: InstanceHost, finished: asyncio.Future[None]) -> None:
        await asyncio.wait({finished}, timeout=timeout_s)
        if not finished.done() and not host.abandon(_overdue(host, timeout_s)):
            logger.warning(
                "a removed instance still runs, its thread is left instance=%s", host.name
            )
        if host.on_state_change is not None:
            host.on_state_change()  # for sequences that are bound to it
        await _stop([host])

    await asyncio.gather(*(retire(host, finished) for host, finished in leaving))


def _overdue(host: InstanceHost, timeout_s: float) -> ServingError:
    return UnavailableError(
        f"instance '{host.name}' was removed, and the request did not finish within the drain "
        f"timeout of {timeout_s:g} s; send it again, or raise --model-drain-timeout-secs"
    )


async def _stop(hosts: Sequence[InstanceHost]) -> None:
    results = await asyncio.gather(*(host.stop() for host in hosts), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ServingError):
            raise result
