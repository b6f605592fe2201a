"""The Python backend: models written as a class `TritonPythonModel` in model.py.

`load` and everything below run in the main thread of an instance process; `auto_complete` is
called in a loading thread of the worker and runs the user's code in a short-lived process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from serving.backends.attributes import BackendAttributes
from serving.backends.base import Backend, LoadedModel, ModelContext, Placement
from serving.backends.python import environments, model_file, settings
from serving.backends.python.auto_complete import complete_in_child
from serving.backends.python.pb_utils import process
from serving.backends.python.runner import PythonInstance
from serving.child_program import Interpreter
from serving.config.json_form import to_json


class PythonBackend(Backend):
    name: ClassVar[str] = "python"
    attributes: ClassVar[BackendAttributes] = BackendAttributes(parallel_instance_loading=True)
    runs_in_child_process: ClassVar[bool] = True
    default_model_filename: ClassVar[str] = model_file.DEFAULT_FILENAME

    def __init__(self, name: str = "", runtime_directory: Path | None = None) -> None:
        """With both: the Python-based backend of that name (BE-010)."""
        if runtime_directory is not None:
            self.name = name  # type: ignore[misc]
            self.runtime_directory = runtime_directory

    def prepare_environment(
        self, context: ModelContext, tell: Callable[[], object]
    ) -> Interpreter | None:
        settings.check(context.backend_config)
        return environments.prepare(context, tell)

    def auto_complete(self, context: ModelContext) -> None:
        """Run the model's auto_complete_config, if it has one. Blocks."""
        complete_in_child(context)

    def load(self, context: ModelContext) -> LoadedModel:
        process.enter(process.Stage.LOADING, context.child)
        return PythonModel(context, model_file.import_model(context))


class PythonModel(LoadedModel):
    def __init__(self, context: ModelContext, model_class: type[Any]) -> None:
        self._context = context
        self._class = model_class

    def create_instance(self, placement: Placement) -> PythonInstance:
        model = model_file.call(f"{model_file.CLASS_NAME}()", self._context, self._class)
        initialize = getattr(model, "initialize", None)
        if initialize is not None:
            arguments = self._arguments(placement)
            model_file.call("initialize", self._context, initialize, arguments)
        return PythonInstance(self._context, placement.instance_name, model)

    def _arguments(self, placement: Placement) -> dict[str, str]:
        kind = placement.kind.value.removeprefix("KIND_")
        # The process sees one device only, which is number 0 there.
        return {
            "model_config": json.dumps(to_json(self._context.config)),
            "model_instance_kind": kind,
            "model_instance_name": placement.instance_name,
            "model_instance_device_id": "0",
            "model_repository": str(self._context.model_directory),
            "model_version": str(self._context.version),
            "model_name": self._context.spec.name,
        }
