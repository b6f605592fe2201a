"""What the coming and going of instance processes does to the memory of their GPUs, for events.

The driver tells what is in use on a device, by whomever; the difference is the process's own where
nothing else has come or gone meanwhile. Loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from serving import devices
from serving.backends.base import Placement
from serving.config.decode import InstanceKind


@dataclass(slots=True)
class GpuUse:
    """Of one instance. Bytes in use on its device, None where the driver does not say."""

    device: int
    before_start: int | None = None
    after_start: int | None = None
    before_end: int | None = None
    after_end: int | None = None

    @classmethod
    def of(cls, placement: Placement) -> GpuUse | None:
        """None for an instance that has no GPU."""
        return cls(placement.device_id) if placement.kind is InstanceKind.GPU else None

    def now(self) -> int | None:
        return devices.memory_used_bytes(self.device)


def started(hosts: Iterable[object]) -> str:
    """Of instances that have come together; empty where none has a process on a GPU."""
    told = ((use.device, use.before_start, use.after_start) for use in _uses(hosts))
    return _text(told, first=min, last=max)


def ended(hosts: Iterable[object]) -> str:
    """Of instances that have gone together."""
    told = ((use.device, use.before_end, use.after_end) for use in _uses(hosts))
    return _text(told, first=max, last=min)


def _uses(hosts: Iterable[object]) -> Iterable[GpuUse]:
    found = (getattr(host, "gpu_use", None) for host in hosts)
    return (use for use in found if isinstance(use, GpuUse))


def _text(
    readings: Iterable[tuple[int, int | None, int | None]],
    *,
    first: Callable[[int, int], int],
    last: Callable[[int, int], int],
) -> str:
    """By device. Instances come and go at once: `first` and `last` choose among their readings."""
    spans: dict[int, tuple[int, int]] = {}
    for device, before, after in readings:
        if before is not None and after is not None:
            known = spans.get(device, (before, after))
            spans[device] = first(known[0], before), last(known[1], after)
    return "; ".join(
        f"memory in use on GPU {device}: {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after"
        for device, (before, after) in sorted(spans.items())
    )
