"""Reads of engine builds and of what can be built; changes nothing. Any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.db.models import Q, QuerySet

from console.engines.choices import OPEN_STATES, BuildState
from console.engines.models import EngineBuild
from console.engines.shapes import ProfileInput, inputs_of
from console.repository import configs
from serving.config import pbtxt
from serving.config.protobuf import pb
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError, NotFoundError
from workers.messages import WorkerInfo


@dataclass(frozen=True, slots=True)
class Source:
    """A model whose ONNX files can be built."""

    model: str
    versions: Sequence[int]
    """With an ONNX file, newest first."""
    inputs: Sequence[ProfileInput]
    """Of the newest."""


def builds(search: str = "", state: str = "") -> QuerySet[EngineBuild]:
    """Newest first."""
    rows = EngineBuild.objects.select_related("actor")
    # PostgreSQL refuses a NUL; nothing is called so.
    for word in search.replace("\0", " ").split():
        rows = rows.filter(Q(model__icontains=word) | Q(target__icontains=word))
    if state == "open":
        return rows.filter(state__in=OPEN_STATES)
    return rows.filter(state=state) if state else rows


def get(pk: int) -> EngineBuild:
    """Raises NotFoundError."""
    found = builds().filter(pk=pk).first()
    if found is None:
        raise NotFoundError(f"There is no engine build {pk}.")
    return found


def built_versions(target: str) -> dict[int, EngineBuild]:
    """Version of the model `target` -> the newest build that made it."""
    rows = EngineBuild.objects.filter(
        target=target, state=BuildState.SUCCEEDED, target_version__isnull=False
    )
    found = rows.select_related("actor").order_by("pk")
    return {row.target_version: row for row in found if row.target_version is not None}


def source_of(model: str) -> Source:
    """Raises: NotFoundError, InvalidArgumentError for a model without an ONNX file."""
    directory = configs.model_directory(model)
    config = config_of(model)
    versions = _onnx_versions(directory, config)
    newest = onnx_path(directory, versions[0], config) if versions else None
    if newest is None:
        raise InvalidArgumentError(
            f"'{model}' has no version with an ONNX file; engines are built out of ONNX files."
        )
    return Source(model, versions, inputs_of(newest, config))


def _onnx_versions(directory: Path, config: pb.ModelConfig | None) -> list[int]:
    """Newest first."""
    numbers = [int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal()]
    there = [number for number in numbers if onnx_path(directory, number, config) is not None]
    return sorted(there, reverse=True)


def can_build(model: str) -> bool:
    """Whether some version of the model has an ONNX file."""
    try:
        return bool(_onnx_versions(configs.model_directory(model), config_of(model)))
    except NotFoundError:
        return False


def config_of(model: str) -> pb.ModelConfig | None:
    """The config on disk as it parses; None where there is none or it does not."""
    text = configs.read_config(model)
    return None if text is None else pbtxt.parse(text).config


def onnx_path(directory: Path, version: int, config: pb.ModelConfig | None) -> Path | None:
    """The ONNX file of a version, where it has one."""
    name = "model.onnx" if config is None else config.default_model_filename or "model.onnx"
    path = directory / str(version) / name
    path = path / name if path.is_dir() else path
    return path if name.endswith(".onnx") and not escapes(name) and path.is_file() else None


def connected(workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Those that can be asked now; with TensorRT first, then with a GPU."""
    ready = [worker for worker in workers if worker.state in ("ready", "starting")]
    return sorted(
        ready,
        key=lambda worker: (bool(tensorrt_install(worker)), not worker.devices, worker.worker_id),
    )


def tensorrt_install(worker: WorkerInfo) -> str:
    """The command that brings TensorRT to a worker that lacks it; empty where it has one."""
    return next(
        (item.install for item in worker.backends if item.name == "tensorrt" and item.is_missing),
        "",
    )
