"""From instance groups to instance hosts: what can run here, how many, in a thread or a child.

Part of `serving.model`; loop thread, when a model is loaded or its instances change.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from serving.backends.base import Backend, LoadedModel, ModelContext, Placement
from serving.config.decode import InstanceGroup, InstanceKind, ModelSpec, SchedulerKind
from serving.config.protobuf import pb
from serving.config.scheduling import RateLimit
from serving.errors import InvalidArgumentError
from serving.host_policies import HostPolicy, cores_of
from serving.instance.base import InstanceHost
from serving.instance.thread import ThreadHost
from serving.services import ModelServices

logger = logging.getLogger(__name__)

ISOLATION = "instance_isolation"


def check_supported(spec: ModelSpec, services: ModelServices) -> None:
    """Raises: InvalidArgumentError for what this server cannot run."""
    for group in spec.instance_groups:
        _check_group(group, services.gpu_count)
        if group.host_policy and group.host_policy not in services.host_policies:
            logger.warning(
                "there is no --host-policy '%s': instances run on any core model=%s group=%s",
                group.host_policy,
                spec.name,
                group.name,
            )
        for device in group.gpus or (0,):
            placement = Placement(group.name, group.kind, device, group.host_policy)
            _cores(placement, services.host_policies)


def _check_group(group: InstanceGroup, gpu_count: int) -> None:
    if group.kind is not InstanceKind.GPU:
        return
    if gpu_count == 0:
        raise InvalidArgumentError(
            f"instance group '{group.name}' asks for KIND_GPU, but this machine has no GPU; use "
            "KIND_CPU, or KIND_AUTO to take a GPU only where there is one"
        )
    for gpu in group.gpus:
        if gpu not in range(gpu_count):
            raise InvalidArgumentError(
                f"instance group '{group.name}' asks for GPU {gpu}, but this machine has GPUs 0 "
                f"to {gpu_count - 1}"
            )


def runs_in_child(context: ModelContext, backend: Backend) -> bool:
    """Raises: InvalidArgumentError for an unknown value of the isolation parameter."""
    wanted = context.spec.parameters.get(ISOLATION, "")
    if wanted not in ("", "thread", "process"):
        raise InvalidArgumentError(
            f"parameter '{ISOLATION}' is '{wanted}': it must be 'process' or 'thread'"
        )
    return backend.runs_in_child(context) or wanted == "process"


@dataclass(frozen=True, slots=True)
class Signature:
    """Instances with one signature can stand in for each other."""

    group: bytes
    """The instance group as the config has it, without name, count and device list."""
    kind: InstanceKind
    device_id: int
    is_passive: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one instance."""

    placement: Placement
    signature: Signature
    limit: RateLimit = RateLimit()

    def named_apart_from(self, names: Collection[str]) -> Slot:
        name = self.placement.instance_name
        group, _, _ = name.rpartition("_")
        numbers = itertools.count()
        while name in names:
            name = f"{group}_{next(numbers)}"
        return replace(self, placement=replace(self.placement, instance_name=name))


def slots(context: ModelContext, backend: Backend) -> list[Slot]:
    """One for every instance that the groups ask for."""
    spec = context.spec
    if spec.scheduler is SchedulerKind.ENSEMBLE:
        return []  # it executes nothing itself
    groups = spec.instance_groups or (
        InstanceGroup("", InstanceKind.CPU, backend.default_cpu_instance_count),
    )
    found = []
    for index, group in enumerate(groups):
        name = group.name or f"{spec.name}_{index}"
        kind = InstanceKind.CPU if group.kind is InstanceKind.AUTO else group.kind
        devices = group.gpus if kind is InstanceKind.GPU and group.gpus else (0,)
        bare = _bare_group(context, index)
        number = 0
        for device in devices:
            signature = Signature(bare, kind, device, group.passive)
            for _ in range(max(1, group.count)):
                placement = Placement(f"{name}_{number}", kind, device, group.host_policy)
                found.append(Slot(placement, signature, group.rate_limit))
                number += 1
    return found


def _bare_group(context: ModelContext, index: int) -> bytes:
    if index >= len(context.config.instance_group):
        return b""
    group = pb.ModelInstanceGroup()
    group.CopyFrom(context.config.instance_group[index])
    for field in ("name", "count", "gpus", "kind"):
        group.ClearField(field)
    return bytes(group.SerializeToString(deterministic=True))


def create(
    context: ModelContext,
    backend: Backend,
    loaded: LoadedModel | None,
    placement: Placement,
    services: ModelServices,
) -> InstanceHost:
    """The host of one instance, not started. Raises InvalidArgumentError for a host policy that
    this machine cannot follow.
    """
    placement = replace(placement, cpu_cores=_cores(placement, services.host_policies))
    if loaded is not None:
        return ThreadHost(
            loaded,
            placement,
            asyncio.get_running_loop(),
            model_name=context.spec.name,
            is_decoupled=context.spec.is_decoupled,
        )
    # Imported here: a server without such models never needs the machinery of child processes.
    from serving.instance.process import ProcessHost

    return ProcessHost(context, backend.source or backend.name, placement, services=services)


def _cores(placement: Placement, policies: Mapping[str, HostPolicy]) -> frozenset[int]:
    """Empty where nothing is said about where the instance runs."""
    kind, device = placement.kind, placement.device_id
    by_kind = {InstanceKind.GPU: f"gpu_{device}", InstanceKind.MODEL: "model"}.get(kind, "cpu")
    name = placement.host_policy or by_kind
    policy = policies.get(name)
    if policy is None:
        return frozenset()
    try:
        return cores_of(name, policy)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
