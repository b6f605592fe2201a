"""Host policies: on which CPU cores instances run, as --host-policy says.

An instance group names its policy; otherwise it is `cpu`, `model` or `gpu_<id>` by its kind. The
policy binds the instance's thread, or its process with all threads that it starts. Memory follows
by itself: Linux gives a thread memory of its own NUMA node. Any thread; reads /sys. Source: spec
CFG-068, SCH-153.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

logger = logging.getLogger(__name__)
_NODES = Path("/sys/devices/system/node")
_MOST_CORES = 4096


@dataclass(frozen=True, slots=True)
class HostPolicy:
    numa_node: int | None = None
    cpu_cores: frozenset[int] = frozenset()
    """Empty: all of the NUMA node."""


def parse_cores(text: str) -> frozenset[int]:
    """`0-3,8` -> 0, 1, 2, 3, 8. Raises ValueError."""
    cores: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
        if match is None:
            raise ValueError(f"'{text}' is not a list of cores like 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < _MOST_CORES:
            raise ValueError(f"'{part.strip()}' is not a range of cores from 0 to {_MOST_CORES}")
        cores.update(range(first, last + 1))
    return frozenset(cores)


def parse_setting(text: str) -> tuple[str, str, int | frozenset[int]]:
    """`<name>,cpu-cores=<list>` or `<name>,numa-node=<number>` -> (name, setting, value).

    Raises: ValueError.
    """
    name, _, rest = text.partition(",")
    setting, equals, value = rest.partition("=")
    name, setting = name.strip(), setting.strip()
    if not name or not equals or setting not in ("cpu-cores", "numa-node"):
        raise ValueError("expects <name>,cpu-cores=<list> or <name>,numa-node=<number>")
    if setting == "cpu-cores":
        return name, setting, parse_cores(value)
    if not re.fullmatch("[0-9]{1,4}", value.strip()):
        raise ValueError(f"has no NUMA node '{value}': it is a number")
    return name, setting, int(value)


def combined(settings: Iterable[tuple[str, str, int | frozenset[int]]]) -> dict[str, HostPolicy]:
    """Settings of one name add up."""
    policies: dict[str, HostPolicy] = {}
    for name, _, value in settings:
        policy = policies.get(name, HostPolicy())
        if isinstance(value, int):
            policies[name] = replace(policy, numa_node=value)
        else:
            policies[name] = replace(policy, cpu_cores=value)
    return policies


def cores_of(name: str, policy: HostPolicy, nodes: Path = _NODES) -> frozenset[int]:
    """The cores that the policy allows. Raises ValueError for those that are not here."""
    cores = policy.cpu_cores
    if policy.numa_node is not None:
        try:
            text = (nodes / f"node{policy.numa_node}" / "cpulist").read_text()
            own = parse_cores(text)
        except (OSError, ValueError):
            raise ValueError(
                f"host policy '{name}' asks for NUMA node {policy.numa_node}, which this machine "
                "does not have: correct --host-policy"
            ) from None
        cores = cores & own if cores else own
    usable = os.sched_getaffinity(0)
    if not cores & usable:
        raise ValueError(
            f"host policy '{name}' leaves no CPU core: this server may use cores "
            f"{', '.join(map(str, sorted(usable)))}; correct --host-policy"
        )
    return frozenset(cores & usable)


def bind(cores: Collection[int], pid: int = 0) -> None:
    """Bind the calling thread, or the process `pid` and whatever it starts."""
    if not cores:
        return
    try:
        os.sched_setaffinity(pid, cores)
    except OSError as error:
        logger.warning("cannot bind to CPU cores %s: %s", sorted(cores), error)
