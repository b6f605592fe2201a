"""What a backend says of itself (spec BE-006). Pure data; any thread."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from serving.config.decode import InstanceKind


class ExecutionPolicy(enum.Enum):
    BLOCKING = "BLOCKING"
    """Instances of a model execute side by side, each in a thread of its own."""
    DEVICE_BLOCKING = "DEVICE_BLOCKING"
    """Of a model's instances on one device, one executes at a time."""


@dataclass(frozen=True, slots=True)
class PreferredGroup:
    """Instances for a model whose config has no instance_group."""

    kind: InstanceKind
    count: int = 1
    gpus: tuple[int, ...] = ()
    """Of KIND_GPU: on which devices; empty for all."""


@dataclass(frozen=True, slots=True)
class BackendAttributes:
    execution_policy: ExecutionPolicy = ExecutionPolicy.BLOCKING
    preferred_instance_groups: tuple[PreferredGroup, ...] = ()
    """In the order of preference; the first one that this machine can have is taken."""
    parallel_instance_loading: bool = False
    """`LoadedModel.create_instance` may run in several threads at once."""
