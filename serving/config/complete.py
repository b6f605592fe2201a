"""Completes a ModelConfig: what the server fills in around the backend (AUT-02, CFG-060..070).

`complete` may be called twice, before and after the backend's own auto_complete: it only fills
what is missing. Every function returns the field paths that it filled. Pure but for looking at
file names; any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from serving.config.backend_files import (
    ENSEMBLE,
    MODEL_FILES,
    ModelFile,
    backend_of_platform,
    model_file,
)
from serving.config.decode import InstanceKind
from serving.config.protobuf import pb

DEFAULT_SEQUENCE_IDLE_US = 1_000_000
_CPU_INSTANCE_COUNTS = {"onnxruntime": 2, "tensorflow": 2}
_CPU_BY_PREFERENCE = frozenset({"python", "identity", "fil", "openvino"})
"""Backends whose instances go to the CPU unless the config says otherwise: they do not use the
NVIDIA GPUs that are counted."""


class Preferred(Protocol):
    """Instances that a backend would have where the config says nothing (BE-006)."""

    @property
    def kind(self) -> InstanceKind: ...

    @property
    def count(self) -> int: ...

    @property
    def gpus(self) -> Sequence[int]: ...


def complete(
    config: pb.ModelConfig,
    *,
    name: str,
    model_directory: Path | None,
    gpu_count: int = 0,
    cpu_instance_count: int | None = None,
    preferred: Sequence[Preferred] = (),
) -> list[str]:
    """Fill name, backend, platform, file name, and every normalised default.

    `cpu_instance_count` is the backend's default count of KIND_CPU instances, `preferred` are the
    groups that it prefers, best first.
    """
    filled = fill_identity(config, name=name, model_directory=model_directory)
    _fill_preferred_group(config, preferred, gpu_count, filled)
    return filled + normalise(config, gpu_count=gpu_count, cpu_instance_count=cpu_instance_count)


def fill_identity(config: pb.ModelConfig, *, name: str, model_directory: Path | None) -> list[str]:
    """Name, backend, platform and default file name, by the files of the first version."""
    filled: list[str] = []
    if not config.name:
        config.name = name
        filled.append("name")
    if config.platform == ENSEMBLE or config.WhichOneof("scheduling_choice") == (
        "ensemble_scheduling"
    ):
        return filled
    _fill_backend(config, model_directory, filled)
    known = model_file(config.backend, config.platform)
    if known is None:
        return filled
    if not config.platform and known.platform:
        config.platform = known.platform
        filled.append("platform")
    # The Python runtime of PyTorch looks for more files than one (REP-025).
    looks_itself = config.backend == "pytorch" and config.runtime == "model.py"
    if not config.default_model_filename and known.is_written and not looks_itself:
        config.default_model_filename = known.filename
        filled.append("default_model_filename")
    return filled


def _fill_backend(config: pb.ModelConfig, model_directory: Path | None, filled: list[str]) -> None:
    if config.backend:
        return
    backend = backend_of_platform(config.platform)
    if not backend and not config.platform and model_directory is not None:
        found = _inferred(model_directory)
        if found is not None:
            backend = found.backend
            if found.platform:
                config.platform = found.platform
                filled.append("platform")
        else:
            _, _, backend = model_directory.name.partition(".")
            if backend and not config.default_model_filename:
                config.default_model_filename = f"model.{backend}"
                filled.append("default_model_filename")
    if backend:
        config.backend = backend
        filled.append("backend")


def _inferred(model_directory: Path) -> ModelFile | None:
    """The backend that the files of the lexicographically first version tell."""
    versions = sorted(
        entry.name
        for entry in model_directory.glob("[0-9]*")
        if entry.name.isdecimal() and entry.is_dir()
    )
    if not versions:
        return None
    version = model_directory / versions[0]
    for item in MODEL_FILES:
        path = version / item.filename
        if not item.is_inferred:
            continue
        if (item.may_be_file and path.is_file()) or (item.may_be_directory and path.is_dir()):
            return item
    return None


def normalise(
    config: pb.ModelConfig, *, gpu_count: int = 0, cpu_instance_count: int | None = None
) -> list[str]:
    """Version policy, preferred sizes, sequence idle time, pinned memory, instance groups."""
    filled: list[str] = []
    if config.version_policy.WhichOneof("policy_choice") is None:
        config.version_policy.latest.num_versions = 1
        filled.append("version_policy")
    _fill_batching(config, filled)
    if config.platform == ENSEMBLE or config.HasField("ensemble_scheduling"):
        return filled
    for field in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(field):
            getattr(config.optimization, field).enable = True
            filled.append(f"optimization.{field}")
    _fill_instance_groups(config, gpu_count, cpu_instance_count, filled)
    return filled


def _fill_batching(config: pb.ModelConfig, filled: list[str]) -> None:
    choice = config.WhichOneof("scheduling_choice")
    size = config.max_batch_size
    if choice == "dynamic_batching":
        preferred = config.dynamic_batching.preferred_batch_size
        if not preferred and size > 0:
            preferred.append(size)
            filled.append("dynamic_batching.preferred_batch_size")
    elif choice == "sequence_batching":
        sequence = config.sequence_batching
        if sequence.max_sequence_idle_microseconds == 0:
            sequence.max_sequence_idle_microseconds = DEFAULT_SEQUENCE_IDLE_US
            filled.append("sequence_batching.max_sequence_idle_microseconds")
        if sequence.HasField("oldest") and not sequence.oldest.preferred_batch_size and size > 0:
            sequence.oldest.preferred_batch_size.append(size)
            filled.append("sequence_batching.oldest.preferred_batch_size")


def _fill_instance_groups(
    config: pb.ModelConfig, gpu_count: int, cpu_instance_count: int | None, filled: list[str]
) -> None:
    if not config.instance_group:
        config.instance_group.add().name = config.name
        filled.append("instance_group")
    if cpu_instance_count is None:
        cpu_instance_count = _CPU_INSTANCE_COUNTS.get(config.backend, 1)
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}]"
        if not group.name:
            group.name = f"{config.name}_{index}"
            filled.append(f"{path}.name")
        if group.kind == pb.ModelInstanceGroup.KIND_AUTO:
            group.kind = _resolved_kind(config.backend, group, gpu_count)
            filled.append(f"{path}.kind")
        is_cpu = group.kind == pb.ModelInstanceGroup.KIND_CPU
        if group.count < 1:
            group.count = cpu_instance_count if is_cpu else 1
            filled.append(f"{path}.count")
        if group.kind == pb.ModelInstanceGroup.KIND_GPU and not group.gpus and gpu_count:
            group.gpus.extend(range(gpu_count))
            filled.append(f"{path}.gpus")


def _fill_preferred_group(
    config: pb.ModelConfig, preferred: Sequence[Preferred], gpu_count: int, filled: list[str]
) -> None:
    """The first group that this machine can have, where the config has none."""
    if config.instance_group:
        return
    for item in preferred:
        gpus = [gpu for gpu in item.gpus if gpu < gpu_count]
        if item.kind is InstanceKind.GPU and not (gpus if item.gpus else gpu_count):
            continue
        group = config.instance_group.add(name=config.name, count=item.count)
        group.kind = pb.ModelInstanceGroup.Kind.Value(item.kind.value)
        group.gpus.extend(gpus if item.kind is InstanceKind.GPU else [])
        filled.append("instance_group")
        return


def _resolved_kind(
    backend: str, group: pb.ModelInstanceGroup, gpu_count: int
) -> pb.ModelInstanceGroup.Kind.ValueType:
    """KIND_AUTO: GPU where every listed GPU (or any, when none is listed) is there, else CPU."""
    if not group.gpus and backend in _CPU_BY_PREFERENCE:
        return pb.ModelInstanceGroup.KIND_CPU
    if gpu_count and all(0 <= gpu < gpu_count for gpu in group.gpus):
        return pb.ModelInstanceGroup.KIND_GPU
    return pb.ModelInstanceGroup.KIND_CPU
