"""Custom batching: a Python file of the model decides, request by request, what a batch may hold.

The five functions of the file mean what Triton's five C entry points mean. They run on the loop
thread, in the server's own process, so they must be quick; whatever they raise is logged once and
costs the batch, never a request. Source: spec SCH-043.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType
from typing import Any

from serving.config import batch_strategy
from serving.errors import ModelLoadError
from serving.request import InferenceRequest

logger = logging.getLogger(__name__)


class BatchStrategy:
    """One model's strategy. Loaded in a load thread, used and closed on the loop thread."""

    def __init__(self, model_name: str, module: ModuleType, batcher: object) -> None:
        self._model_name = model_name
        self._module: Any = module
        self._batcher = batcher
        self._has_failed: set[str] = set()

    def __repr__(self) -> str:
        return f"<BatchStrategy {self._model_name} {self._module.__file__}>"

    @classmethod
    def load(cls, path: Path, model_name: str, config: dict[str, Any]) -> BatchStrategy:
        """Run the file and its `batcher_initialize`. Raises ModelLoadError naming file and cause.

        `config` is the model's, as JSON.
        """
        problem = batch_strategy.problem_of(path)
        if problem:
            raise ModelLoadError(problem)
        try:
            module: Any = _imported(path, model_name)
            batcher = module.batcher_initialize(config)
        except (Exception, SystemExit) as error:
            raise ModelLoadError(
                f"custom batching strategy '{path.name}' failed to start: "
                f"{type(error).__name__}: {error}"
            ) from error
        return cls(model_name, module, batcher)

    def begin(self) -> object:
        """The state of a batch that is about to be put together."""
        try:
            return self._module.batch_initialize(self._batcher)
        except (Exception, SystemExit) as error:
            self._failed("batch_initialize", error)
            return None

    def includes(self, request: InferenceRequest, batch: object) -> bool:
        """May the request join? A strategy that fails says no: the batch goes as it is."""
        try:
            return bool(self._module.batch_include_request(request, batch))
        except (Exception, SystemExit) as error:
            self._failed("batch_include_request", error)
            return False

    def end(self, batch: object) -> None:
        try:
            self._module.batch_finalize(batch)
        except (Exception, SystemExit) as error:
            self._failed("batch_finalize", error)

    def close(self) -> None:
        try:
            self._module.batcher_finalize(self._batcher)
        except (Exception, SystemExit) as error:
            self._failed("batcher_finalize", error)

    def _failed(self, function: str, error: BaseException) -> None:
        if function in self._has_failed:
            return
        self._has_failed.add(function)
        logger.error(
            "custom batching: %s failed, batches go without it (told once): %s: %s model=%s",
            function,
            type(error).__name__,
            error,
            self._model_name,
        )


def _imported(path: Path, model_name: str) -> ModuleType:
    module = ModuleType(f"batchstrategy_{model_name}")
    module.__file__ = str(path)
    # Not by the import system: that would leave compiled files in the model's folder.
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102
    return module
