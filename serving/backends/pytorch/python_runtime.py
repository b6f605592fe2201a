"""The Python runtime (`runtime: "model.py"`): a torch.nn.Module of the user's, or TorchScript.

Main thread of an instance process, since the user's code runs. Tensors go in and come out in the
order of the config; inputs after one that a request leaves out go in by the names of forward's
parameters. Source: spec PT-24..26, REP-025.
"""

from __future__ import annotations

import inspect
import sys
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
from serving.backends.python.model_file import call, describe, run_file
from serving.backends.pytorch import failures, naming, runtime, switches
from serving.backends.pytorch.results import Results
from serving.backends.pytorch.runtime import Array, torch
from serving.config.torch_parameters import COMPILE, PythonOptions
from serving.errors import (
    BackendError,
    InternalError,
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    UnsupportedError,
)

RUNTIME = "model.py"
_FILENAMES = ("model.py", "model.pt")


class PythonRuntimeModel(LoadedModel):
    def __init__(self, context: ModelContext) -> None:
        """Raises: ServingError for parameters, tensors and files that cannot be."""
        self._context = context
        self._options = PythonOptions.of(context.spec.parameters)
        _check_tensors(context)
        self._path = _find(context)

    def create_instance(self, placement: Placement) -> ModelInstance:
        model = self._context.spec.name
        torch().set_num_threads(self._options.threads)
        switches.set_interop_threads(
            self._options.interop_threads, f"parameter 'NUM_INTEROP_THREADS' of model '{model}'"
        )
        device = runtime.device_of(self._context, placement)
        if self._path.suffix == ".py":
            module, device = self._from_source(device)
        else:
            module, device = self._from_torchscript(device)
        return PythonRuntimeInstance(self._context, module, device)

    def _from_torchscript(self, device: Any | None) -> tuple[Any, Any]:
        try:
            module = torch().jit.load(str(self._path), map_location=device)
        except Exception as error:
            raise failures.load_error(self._context.spec.name, self._path, error) from error
        return module.eval(), device or runtime.device_of_parameters(module)

    def _from_source(self, device: Any | None) -> tuple[Any, Any]:
        sys.path.insert(0, str(self._context.version_directory))
        sys.path.append(str(self._context.model_directory))
        found = find_class(run_file(self._context, self._path), self._shown)
        module = call(f"{found.__name__}()", self._context, found)
        device = device or runtime.device_of_parameters(module)
        weights = self._path.with_suffix(".pt")
        if weights.is_file():
            self._load_weights(module, weights, device)
        module = module.to(device).eval()
        if self._options.compile.get("disable"):
            return module, device
        return self._compiled(module), device

    def _compiled(self, module: Any) -> Any:
        """What compiles itself at its first execution."""
        try:
            return torch().compile(module, **self._options.compile)
        except Exception as error:  # its backends raise what they like
            raise InvalidArgumentError(
                f"parameter '{COMPILE}' of model '{self._context.spec.name}' is refused by "
                f"torch.compile: {failures.cause_of(error)}"
            ) from error

    def _load_weights(self, module: Any, path: Path, device: Any) -> None:
        model, file = self._context.spec.name, f"{path.parent.name}/{path.name}"
        try:
            state = torch().load(path, map_location=device, weights_only=True)
        except Exception as error:
            raise InternalError(
                f"failed to load model '{model}': {file} holds no weights that can be read "
                f"({failures.cause_of(error)}); save them with torch.save(module.state_dict(), ...)"
            ) from error
        try:
            module.load_state_dict(state)
        except Exception as error:
            raise InternalError(
                f"failed to load model '{model}': the weights in {file} do not fit the module in "
                f"{self._shown}: {failures.joined(error)}"
            ) from error

    @property
    def _shown(self) -> str:
        return f"{self._context.version}/{self._path.name}"


class PythonRuntimeInstance(TensorInstance):
    def __init__(self, context: ModelContext, module: Any, device: Any) -> None:
        super().__init__(context)
        self._context = context
        self._module = module
        self._device = device
        self._inputs = list(context.spec.backend_inputs)
        self._parameters = _parameters_of(module, context)
        places = {name: index for index, name in enumerate(context.spec.backend_outputs)}
        self._results = Results(context.spec, places)

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        rows = self._rows if self._spec.has_batch_axis else None
        try:
            with torch().inference_mode():
                returned = self._call(inputs)
                # A list of tensors, too: in Python it is as good as a tuple.
                values = tuple(returned) if isinstance(returned, list) else returned
                return self._results.arrays(self._results.listed(values), output_names, rows)
        except ServingError:
            raise
        except (RuntimeError, IndexError) as error:
            raise failures.execution_error(self._spec.name, error) from error
        except Exception as error:
            raise BackendError(
                f"PyTorch execute failure: model '{self._spec.name}': "
                f"{describe(error, self._context, str(Path(torch().__file__).parent))}"
            ) from error

    def _call(self, inputs: dict[str, Array]) -> Any:
        positional, named = [], {}
        is_gapless = True
        for place, name in enumerate(self._inputs):
            array = inputs.get(name)
            if array is None:
                is_gapless = False
                continue
            tensor = runtime.to_tensor(array, self._device)
            if is_gapless:
                positional.append(tensor)
            else:
                named[self._parameters[place]] = tensor
        return self._module(*positional, **named)

    def close(self) -> None:
        self._module = None


def _parameters_of(module: Any, context: ModelContext) -> list[str]:
    """Names of forward's parameters, in order.

    Raises: ModelLoadError where an input may be left out, and one after it has no such name.
    """
    if isinstance(module, torch().jit.ScriptModule):
        names = [item.name for item in module.forward.schema.arguments[1:]]
    else:
        written = getattr(module, "_orig_mod", module)  # what torch.compile wraps
        parameters = inspect.signature(written.forward).parameters.values()
        names = [item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
    inputs = list(context.spec.backend_inputs.values())
    optional = next((item.name for item in inputs[:-1] if item.is_optional), None)
    if optional is not None and len(names) < len(inputs):
        raise ModelLoadError(
            f"input '{optional}' of model '{context.spec.name}' is optional, and forward has "
            f"{len(names)} named parameters for {len(inputs)} inputs: name one for each, or list "
            "the optional input last"
        )
    return names


def find_class(module: object, shown: str) -> Any:
    """The one subclass of torch.nn.Module that the file defines; those whose name begins with `_`
    are parts of it.

    Raises: ModelLoadError where there is none, or more than one.
    """
    base = torch().nn.Module
    classes = [
        item
        for name, item in vars(module).items()
        if isinstance(item, type)
        and issubclass(item, base)
        and item.__module__ == getattr(module, "__name__", "")
        and name == item.__name__
    ]
    if len(classes) > 1:
        classes = [item for item in classes if not item.__name__.startswith("_")] or classes
    if len(classes) == 1:
        return classes[0]
    if not classes:
        raise ModelLoadError(
            f"'{shown}' defines no subclass of torch.nn.Module: define one whose constructor takes "
            "no arguments"
        )
    raise ModelLoadError(
        f"'{shown}' defines several subclasses of torch.nn.Module: "
        f"{', '.join(item.__name__ for item in classes)}; begin the names of those that are parts "
        "of the model with _, or move them to another file beside it"
    )


def _find(context: ModelContext) -> Path:
    """The first of default_model_filename, model.py, model.pt that is there (REP-025)."""
    named = context.config.default_model_filename
    if named and (context.version_directory / named).is_file():
        return model_path(context, named)
    for name in _FILENAMES:
        path = context.version_directory / name
        if path.is_file():
            return path
    return model_path(context, _FILENAMES[0])


def _check_tensors(context: ModelContext) -> None:
    spec = context.spec
    for kind, tensors in (("input", spec.inputs), ("output", spec.outputs)):
        if not tensors:
            raise InternalError(naming.none_specified(spec, kind))
        for item in tensors.values():
            if item.datatype.is_bytes:
                raise UnsupportedError(
                    f"{kind} '{item.name}' of model '{spec.name}' is TYPE_STRING: modules that run "
                    f'with runtime: "{RUNTIME}" take and return tensors only; use TorchScript, or '
                    "the backend python"
                )
