"""The Python backend: models written as a class `TritonPythonModel` in model.py.

`load` and everything below run in the main thread of an instance process; `auto_complete` is
called in a loading thread of the worker and runs the user's code in a short-lived process.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from serving.backends.base import Backend, LoadedModel, ModelContext, Placement
from serving.backends.python import model_file
from serving.backends.python.auto_complete import complete_in_child
from serving.backends.python.pb_utils import process
from serving.backends.python.runner import PythonInstance
from serving.config.decode import InstanceKind
from serving.config.json_form import to_json
from serving.errors import UnsupportedError

_ENVIRONMENT = "EXECUTION_ENV_PATH"


class PythonBackend(Backend):
    name: ClassVar[str] = "python"
    runs_in_child_process: ClassVar[bool] = True
    default_model_filename: ClassVar[str] = model_file.DEFAULT_FILENAME

    def auto_complete(self, context: ModelContext) -> None:
        """Run the model's auto_complete_config, if it has one. Blocks."""
        complete_in_child(context)

    def load(self, context: ModelContext) -> LoadedModel:
        if _ENVIRONMENT in context.spec.parameters:
            raise UnsupportedError(
                f"model '{context.spec.name}': the parameter {_ENVIRONMENT} is not supported by "
                "this release of Conch: remove it and install what the model imports beside Conch"
            )
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
        device = placement.device_id if placement.kind is InstanceKind.GPU else 0
        return {
            "model_config": json.dumps(to_json(self._context.config)),
            "model_instance_kind": kind,
            "model_instance_name": placement.instance_name,
            "model_instance_device_id": str(device),
            "model_repository": str(self._context.model_directory),
            "model_version": str(self._context.version),
            "model_name": self._context.spec.name,
        }
