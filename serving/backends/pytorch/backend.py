"""The backend `pytorch`: chooses between TorchScript, PT2 archives and the Python runtime.

Load threads enter. Source: spec PT-01, REP-023..025, AUT-07.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from serving.backends.base import Backend, LoadedModel, ModelContext
from serving.backends.pytorch.torchscript import FILENAME, TorchScriptModel
from serving.errors import UnsupportedError

logger = logging.getLogger(__name__)


class PyTorchBackend(Backend):
    name: ClassVar[str] = "pytorch"
    default_model_filename: ClassVar[str] = FILENAME

    def auto_complete(self, context: ModelContext) -> None:
        """Names and shapes of tensors are in no TorchScript file: there is nothing to fill in."""
        if not context.config.input or not context.config.output:
            logger.warning(
                "skipping model configuration auto-complete for '%s': not supported for pytorch "
                "backend; its config must declare inputs and outputs",
                context.config.name,
            )

    def load(self, context: ModelContext) -> LoadedModel:
        if context.spec.is_decoupled:
            raise UnsupportedError(
                "model_transaction_policy.decoupled is for backends that may answer more than "
                "once; pytorch answers once: remove it"
            )
        return TorchScriptModel(context)
