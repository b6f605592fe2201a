"""TorchScript modules: loading, and executing batches.

One module for each instance, or with ENABLE_WEIGHT_SHARING one for each device. Load threads enter
the model, an instance belongs to its thread. Source: spec PT-02..08, PT-15..23, PT-27..30.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.backends.base import (
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    TensorInstance,
)
from serving.backends.model_place import model_path
from serving.backends.pytorch import failures, naming, runtime, switches
from serving.backends.pytorch.results import Results
from serving.backends.pytorch.runtime import Array, torch
from serving.config.torch_parameters import TorchOptions
from serving.errors import ModelLoadError, ServingError

logger = logging.getLogger(__name__)

FILENAME = "model.pt"


class TorchScriptModel(LoadedModel):
    def __init__(self, context: ModelContext) -> None:
        """Raises: ServingError for parameters, names and files that cannot be."""
        self._context = context
        self._path = model_path(context, FILENAME)
        self._options = TorchOptions.of(context.spec.parameters)
        self._lock = threading.Lock()
        self._shared: dict[str, Any] = {}
        torch()  # a server without it says so at load
        self.outputs = naming.output_places(context.spec)

    def create_instance(self, placement: Placement) -> ModelInstance:
        switches.apply_threads(self._options, self._context.spec.name)
        device = runtime.device_of(self._context, placement)
        module = self._module(device)
        plan = naming.plan_call(self._context.spec, _arguments(module))
        return TorchScriptInstance(self._context, module, plan, self, device)

    @property
    def options(self) -> TorchOptions:
        return self._options

    def unload(self) -> None:
        self._shared.clear()
        runtime.give_back_memory()

    def _module(self, device: Any | None) -> Any:
        if not self._options.weight_sharing:
            return self._load(device)
        with self._lock:
            module = self._shared.get(str(device))
            if module is None:
                module = self._shared[str(device)] = self._load(device)
                if _keeps_state(module):
                    logger.warning(
                        "model '%s' keeps tensors between calls, and with ENABLE_WEIGHT_SHARING "
                        "all its instances on a device share them: set it to false",
                        self._context.spec.name,
                    )
            return module

    def _load(self, device: Any | None) -> Any:
        model = self._context.spec.name
        try:
            with switches.modes(self._options):
                module = torch().jit.load(str(self._path), map_location=device)
                if device is not None and device.type == "cuda":
                    torch().cuda.synchronize(device)  # instances read it in streams of their own
        except Exception as error:
            cause = failures.load_error(model, self._path, error, _hint(self._path, error))
            raise cause from error
        if not hasattr(module, "forward"):
            raise ModelLoadError(
                f"failed to load model '{model}': {self._path.parent.name}/{self._path.name}: the "
                "module has no method forward"
            )
        return module


def _hint(path: Path, error: Exception) -> str:
    if path.suffix == ".pt2":
        return '; a PT2 archive is loaded with platform: "torch_aoti"'
    if "constants.pkl" not in str(error):
        return ""
    return (
        "; it holds no TorchScript module: save one with torch.jit.save, or keep the weights and "
        'add a model.py with runtime: "model.py"'
    )


class TorchScriptInstance(TensorInstance):
    def __init__(
        self,
        context: ModelContext,
        module: Any,
        plan: naming.CallPlan,
        model: TorchScriptModel,
        device: Any | None,
    ) -> None:
        super().__init__(context)
        self._module = module
        self._plan = plan
        self._options = model.options
        self._device = device or torch().device("cpu")
        self._writes_inputs = _writes_inputs(module)
        self._results = Results(context.spec, model.outputs)
        is_cuda = self._device.type == "cuda"
        self._stream = torch().cuda.Stream(self._device) if is_cuda else None
        self._defaults = [argument.default for argument in plan.arguments]

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        with switches.modes(self._options, self._stream):
            tensors = {name: self._tensor(name, array) for name, array in inputs.items()}
            rows = self._rows if self._spec.has_batch_axis else None
            try:
                values = self._results.listed(self._call(tensors))
                return self._results.arrays(values, output_names, rows)
            except ServingError:
                raise
            except Exception as error:
                raise failures.execution_error(self._spec.name, error) from error
            finally:
                if self._options.cache_cleaning:
                    runtime.give_back_memory()

    def close(self) -> None:
        self._module = None
        runtime.give_back_memory()

    def _tensor(self, name: str, array: Array) -> Any:
        if array.dtype.hasobject:
            return runtime.to_strings(array, name, self._spec.name)
        return runtime.to_tensor(array, self._device, is_written=self._writes_inputs)

    def _call(self, tensors: dict[str, Any]) -> Any:
        if self._plan.is_dictionary:
            return self._module(tensors)
        return self._module(
            *(
                default if name is None else tensors.get(name, default)
                for name, default in zip(self._plan.names, self._defaults, strict=True)
            )
        )


def _arguments(module: Any) -> list[naming.Argument]:
    """Of forward, without self."""
    found: list[naming.Argument] = []
    for item in module.forward.schema.arguments:
        kind = item.type
        if kind.kind() == "ClassType" and not found:
            continue
        is_optional = item.has_default_value()
        if kind.kind() == "OptionalType":
            is_optional, kind = True, kind.getElementType()
        found.append(naming.Argument(item.name, str(kind), item.default_value, is_optional))
    return found


def _keeps_state(module: Any) -> bool:
    """Whether forward changes what the module holds; False where it cannot be told."""
    changes = _changes(module)
    return changes is not None and changes[0]


def _writes_inputs(module: Any) -> bool:
    """Whether forward may change the tensors that it is given, or keep them beyond the call, say in
    a list of the module's; True where it cannot be told."""
    changes = _changes(module)
    return changes is None or any(changes)


def _changes(module: Any) -> tuple[bool, bool] | None:
    """Whether forward may change what the module holds, and what it is given; None where it cannot
    be told."""
    try:
        graph = module.inlined_graph
        aliases = graph.alias_db()
        own, *given = graph.inputs()
        held = [own, *(node.output() for node in graph.findAllNodes("prim::GetAttr", True))]
        return any(map(aliases.has_writers, held)), any(map(aliases.has_writers, given))
    except Exception:
        return None
