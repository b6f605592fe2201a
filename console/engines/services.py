"""Start, cancel and repeat engine builds. Every function writes the audit log.

A function stores a row, then starts the task that talks to the worker, once the transaction is
committed. Raises `ServingError` subclasses with a sentence for the person.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.core import audit
from console.core import workers as fleet
from console.core.background import start_on_commit
from console.engines import selectors, shapes
from console.engines.choices import OPEN_STATES, BuildState
from console.engines.models import EngineBuild
from console.repository import selectors as repository
from console.repository.names import NameRefusedError, check_model_name
from serving.errors import InvalidArgumentError, NotFoundError, UnavailableError
from workers.client import WorkerError
from workers.engine_messages import EngineOrder, order_problem

Ranges = Mapping[str, Sequence[Sequence[int]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a person asks for; what is left out is chosen."""

    model: str
    version: int | None = None
    """None: the newest with an ONNX file."""
    target: str = ""
    """Empty: the model's name with _trt."""
    worker_id: str = ""
    """Empty: a connected one, with a GPU where there is one."""
    library: str = ""
    precision: str = "model"
    profiles: Sequence[Ranges] | None = None
    """None: one out of the model's signature."""
    workspace_bytes: int = 0
    capabilities: Sequence[str] = field(default_factory=tuple)
    is_version_compatible: bool = False

    def __str__(self) -> str:
        return self.target or default_target(self.model)


def default_target(model: str) -> str:
    return f"{model}_trt"


@audit.records_refusals("build engine", "wish")
def build_engine(*, actor: Any, wish: Wish) -> EngineBuild:
    """Raises NotFoundError, InvalidArgumentError, UnavailableError."""
    source = selectors.source_of(wish.model)
    version = source.versions[0] if wish.version is None else wish.version
    if version not in source.versions:
        raise NotFoundError(f"'{wish.model}' has no version {version} with an ONNX file.")
    target = _target(wish)
    profiles = wish.profiles if wish.profiles is not None else shapes.prefilled([*source.inputs])
    if profiles is None:
        raise InvalidArgumentError(
            "The model does not say how large its inputs may be: give a profile with the "
            "smallest, the best and the largest shape of each."
        )
    build = EngineBuild(
        build_id=uuid.uuid4().hex,
        model=wish.model,
        version=version,
        target=target,
        worker_id=_worker(wish.worker_id),
        library=wish.library,
        precision=wish.precision,
        profiles=[_as_lists(row) for row in profiles],
        workspace_bytes=wish.workspace_bytes,
        capabilities=list(wish.capabilities),
        is_version_compatible=wish.is_version_compatible,
        actor=actor,
    )
    problem = order_problem(order_of(build))
    if problem:
        raise InvalidArgumentError(problem)
    with transaction.atomic():
        build.save()
        _start(build)
    return build


def _as_lists(profile: Ranges) -> dict[str, list[list[int]]]:
    return {name: [list(shape) for shape in ranges] for name, ranges in profile.items()}


def order_of(build: EngineBuild) -> EngineOrder:
    """As it is sent to the worker."""
    return EngineOrder(
        build_id=build.build_id,
        model=build.model,
        version=build.version,
        target=build.target,
        library=build.library,
        precision=build.precision,
        profiles=[
            {name: (row[0], row[1], row[2]) for name, row in profile.items()}
            for profile in build.profiles
        ],
        workspace_bytes=build.workspace_bytes,
        capabilities=build.capabilities,
        is_version_compatible=build.is_version_compatible,
    )


def _target(wish: Wish) -> str:
    try:
        target = check_model_name(wish.target or default_target(wish.model))
    except NameRefusedError as error:
        raise InvalidArgumentError(str(error)) from error
    if target == wish.model:
        raise InvalidArgumentError(
            f"The engine cannot become a version of '{target}' itself, whose versions are ONNX "
            "files; give another name."
        )
    if repository.model_exists(target):
        config = selectors.config_of(target)
        words = set() if config is None else {config.backend, config.platform}
        if config is not None and not words & {"tensorrt", "tensorrt_plan"}:
            raise InvalidArgumentError(
                f"There is a model '{target}' already, and it is none of TensorRT; give another "
                "name."
            )
    return target


def _worker(worker_id: str) -> str:
    workers, problem = fleet.known()
    if problem:
        raise UnavailableError(problem)
    connected = {worker.worker_id: worker for worker in selectors.connected(workers)}
    chosen = connected.get(worker_id or next(iter(connected), ""))
    if chosen is not None:
        install = selectors.tensorrt_install(chosen)
        if install:
            raise UnavailableError(
                f"Worker '{chosen.worker_id}' has no TensorRT. Install it where the worker runs, "
                f"and start the worker again: {install}."
            )
        return chosen.worker_id
    if worker_id in {worker.worker_id for worker in workers}:
        raise UnavailableError(f"Worker '{worker_id}' is not connected.")
    if worker_id:
        known = ", ".join(sorted(worker.worker_id for worker in workers)) or "none"
        raise NotFoundError(f"There is no worker '{worker_id}'. Known workers: {known}.")
    raise UnavailableError("No worker is connected: engines are built on workers.")


@audit.records_refusals("cancel engine build", "build")
def cancel(*, actor: Any, build: EngineBuild) -> None:
    """Ask the worker to stop; one that was not sent yet ends at once.

    Raises InvalidArgumentError for a build that is over, UnavailableError.
    """
    if not build.is_open:
        raise InvalidArgumentError(f"Engine build {build.pk} is over.")
    unsent = EngineBuild.objects.filter(pk=build.pk, state=BuildState.QUEUED, sent_at=None)
    if not unsent.update(state=BuildState.CANCELLED, finished_at=timezone.now()):
        try:
            fleet.get_client().cancel_engine(build.worker_id, build.build_id)
        except WorkerError as error:
            raise UnavailableError(str(error)) from error
    audit.record(actor, "cancel engine build", build.target, {"build": build.pk})


@audit.records_refusals("retry engine build", "build")
def retry(*, actor: Any, build: EngineBuild) -> EngineBuild:
    """The same once more, as a new build. Raises InvalidArgumentError, NotFoundError."""
    if build.state in OPEN_STATES:
        raise InvalidArgumentError(f"Engine build {build.pk} still runs; wait for its end.")
    wish = Wish(
        model=build.model,
        version=build.version,
        target=build.target,
        worker_id=build.worker_id,
        library=build.library,
        precision=build.precision,
        profiles=build.profiles,
        workspace_bytes=build.workspace_bytes,
        capabilities=build.capabilities,
        is_version_compatible=build.is_version_compatible,
    )
    return build_engine(actor=actor, wish=wish)


def _start(build: EngineBuild) -> None:
    from console.engines.tasks import dispatch_build

    audit.record(
        build.actor,
        "build engine",
        build.target,
        {
            "build": build.pk,
            "from": f"{build.model} v{build.version}",
            "worker": build.worker_id,
            "precision": build.precision,
            "profiles": build.profiles,
        },
    )
    start_on_commit(dispatch_build, build.pk)
