"""The steps of a model's life that block or may be given up: labels, load, unload, their errors.

Loop thread; what blocks goes to the executor that the caller brings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from serving import warmup
from serving.backends.base import Backend, LoadedModel, ModelContext, loaded_by
from serving.backends.governed import governed
from serving.config import batch_strategy
from serving.config.decode import SchedulerKind
from serving.config.json_form import to_json
from serving.errors import (
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    UnavailableError,
    UnsupportedError,
)
from serving.scheduling.custom_batching import BatchStrategy
from serving.scheduling.sequence.initial_state import read_initial_states
from serving.scheduling.sequence.state import ImplicitState
from serving.services import ModelServices

logger = logging.getLogger(__name__)
T = TypeVar("T")
_background: set[asyncio.Task[None]] = set()
"""The loop keeps weak references to tasks only."""


class LoadPhases:
    """Names model, version and phase in whatever a step of the load raises."""

    def __init__(self, name: str, version: int) -> None:
        self._name = name
        self._version = version

    async def __call__(self, phase: str, step: Awaitable[T]) -> T:
        prefix = f"failed to load '{self._name}' version {self._version}: {phase}: "
        try:
            return await step
        except (UnsupportedError, UnavailableError) as error:
            raise type(error)(prefix + error.message) from error
        except ServingError as error:
            raise ModelLoadError(prefix + error.message) from error
        except Exception as error:
            logger.exception("load failed model=%s version=%s", self._name, self._version)
            raise ModelLoadError(f"{prefix}{type(error).__name__}: {error}") from error


async def load(backend: Backend, context: ModelContext, services: ModelServices) -> LoadedModel:
    loop = asyncio.get_running_loop()
    loading = loop.run_in_executor(services.executor, _load, backend, context)
    try:
        loaded = await asyncio.shield(loading)
    except asyncio.CancelledError:
        in_background(_unload_late(loading, services))
        raise
    try:
        services.metrics.watch(loaded, loaded.counters)
    except InvalidArgumentError:
        await unload(loaded, services)
        raise
    return loaded


def _load(backend: Backend, context: ModelContext) -> LoadedModel:
    return governed(loaded_by(backend, context), backend.attributes)


async def _unload_late(loading: asyncio.Future[LoadedModel], services: ModelServices) -> None:
    """Nobody waits for this load any more; give back what it got."""
    try:
        await unload(await loading, services)
    except ServingError as error:
        logger.info("a load that was given up has failed: %s", error)


def in_background(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _background.add(task)
    task.add_done_callback(_background.discard)


async def unload(loaded: LoadedModel | None, services: ModelServices) -> None:
    if loaded is not None:
        services.metrics.leave(loaded)
        await asyncio.get_running_loop().run_in_executor(services.executor, loaded.unload)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What lies beside the model file and is read before the model is loaded."""

    labels: dict[str, list[str]]
    samples: list[warmup.PreparedSample]
    strategy: BatchStrategy | None
    states: ImplicitState | None

    def close(self) -> None:
        """For a load that goes no further."""
        if self.strategy is not None:
            self.strategy.close()


async def read_files(context: ModelContext, executor: Executor | None) -> ModelFiles:
    return await asyncio.get_running_loop().run_in_executor(executor, _read_files, context)


def _read_files(context: ModelContext) -> ModelFiles:
    labels, samples = read_labels(context), warmup.prepare(context)
    return ModelFiles(labels, samples, _strategy(context), _states(context))


def _states(context: ModelContext) -> ImplicitState | None:
    if not context.spec.states:
        return None
    return ImplicitState(context.spec, read_initial_states(context))


def _strategy(context: ModelContext) -> BatchStrategy | None:
    spec = context.spec
    if spec.scheduler is not SchedulerKind.DYNAMIC:
        return None
    path = batch_strategy.find(spec.parameters, context.model_directory, context.version)
    if path is None:
        return None
    return BatchStrategy.load(path, spec.name, to_json(context.config))


def read_labels(context: ModelContext) -> dict[str, list[str]]:
    labels = {}
    for output in context.spec.outputs.values():
        if output.label_filename:
            path = context.model_directory / output.label_filename
            labels[output.name] = _read_label_file(path, output.name)
    return labels


def _read_label_file(path: Path, output_name: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(
            f"unable to read label file '{path.name}' of output '{output_name}': {error}"
        ) from error
