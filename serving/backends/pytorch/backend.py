"""The backend `pytorch`: chooses between TorchScript, PT2 archives and the Python runtime.

Load threads enter, and the main threads of instance processes. Source: spec PT-01, PT-14, PT-24,
REP-023..025, AUT-07.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar

from serving.backends.attributes import BackendAttributes
from serving.backends.base import Backend, LoadedModel, ModelContext
from serving.backends.model_place import refuse_decoupled
from serving.backends.python import environments
from serving.backends.pytorch import pt2
from serving.backends.pytorch.python_runtime import RUNTIME, PythonRuntimeModel
from serving.backends.pytorch.torchscript import FILENAME, TorchScriptModel
from serving.child_program import Interpreter

logger = logging.getLogger(__name__)


class PyTorchBackend(Backend):
    name: ClassVar[str] = "pytorch"
    attributes: ClassVar[BackendAttributes] = BackendAttributes(parallel_instance_loading=True)
    default_model_filename: ClassVar[str] = FILENAME

    def runs_in_child(self, context: ModelContext) -> bool:
        """The user's code must not share the server's interpreter."""
        return bool(context.config.runtime == RUNTIME)

    def prepare_environment(
        self, context: ModelContext, tell: Callable[[], object]
    ) -> Interpreter | None:
        return environments.prepare(context, tell) if self.runs_in_child(context) else None

    def auto_complete(self, context: ModelContext) -> None:
        """From a PT2 archive; a TorchScript file tells no shapes, there is nothing to fill in."""
        if context.config.platform == pt2.PLATFORM and not self.runs_in_child(context):
            pt2.auto_complete(context)
        elif not context.config.input or not context.config.output:
            logger.warning(
                "skipping model configuration auto-complete for '%s': not supported for pytorch "
                "backend; its config must declare inputs and outputs",
                context.config.name or context.model_directory.name,
            )

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        if self.runs_in_child(context):
            return PythonRuntimeModel(context)
        if context.config.platform == pt2.PLATFORM:
            return pt2.Pt2Model(context)
        return TorchScriptModel(context)
