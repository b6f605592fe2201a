"""The two kinds of programs in PT2 archives, behind one way to run them: tensors in call order.

The threads of instances enter; a program that instances share is entered by all of them. Source:
spec PT-11, PT-14, PT-18.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from serving.backends.pytorch.runtime import torch
from serving.config.torch_call_spec import CallSpec, parse_call_spec
from serving.errors import ModelLoadError, UnavailableError

_export_lock = threading.Lock()
"""Reading an exported program switches modes of torch that hold for the process."""
_GUARD = "Guard failed: "


class MisfitError(Exception):
    """The tensors are not what the program was exported for; the text says what it requires."""


class Program(Protocol):
    @property
    def call_spec(self) -> CallSpec:
        """Raises: ModelLoadError for a structure that is not supported."""

    def run(self, tensors: list[Any]) -> Sequence[Any]:
        """The results, flat. May take the tensors as its own.

        Raises: MisfitError, else whatever torch raises.
        """


class _Compiled:
    """Machine code of AOTInductor. Not entered by more threads than it has runners."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    @property
    def call_spec(self) -> CallSpec:
        return _parsed(*self._loader.get_call_spec())

    def run(self, tensors: list[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self._loader.boxed_run(tensors)
        return results


def compiled(path: Path, model_name: str, device: Any, runners: int) -> Program:
    """`runners`: how many threads may run it at once; they share its weights.

    Raises: UnavailableError for a torch without AOTInductor, else whatever torch raises.
    """
    native = getattr(torch()._C, "_aoti", None)
    loader = getattr(native, "AOTIModelPackageLoader", None)
    if loader is None:
        raise UnavailableError(
            f"the installed torch {torch().__version__} has no loader for archives of "
            "AOTInductor: install a build for this platform of version 2.6 or later"
        )
    index = -1 if device.type == "cpu" or device.index is None else device.index
    return _Compiled(loader(str(path), model_name, runners == 1, runners, index))


class _Exported:
    """A program of torch.export, which torch runs operator by operator."""

    def __init__(self, module: Any, program: Any) -> None:
        self._module = module
        self._call_spec = program.call_spec
        self._pytree = torch("torch.utils._pytree")

    @property
    def call_spec(self) -> CallSpec:
        dumps = self._pytree.treespec_dumps
        return _parsed(dumps(self._call_spec.in_spec), dumps(self._call_spec.out_spec))

    def run(self, tensors: list[Any]) -> Sequence[Any]:
        args, kwargs = self._pytree.tree_unflatten(tensors, self._call_spec.in_spec)
        try:
            leaves: Sequence[Any] = self._pytree.tree_leaves(self._module(*args, **kwargs))
        except AssertionError as error:
            if not str(error).startswith(_GUARD):
                raise
            # What forward took for granted when it was exported: sizes and their relations.
            condition = str(error).removeprefix(_GUARD).partition("\n")[0]
            raise MisfitError(f"it requires {condition}") from error
        return leaves


def exported(path: Path, device: Any | None) -> Program:
    """`device`: where all of it is moved to; None leaves it where it was exported.

    Raises: whatever torch raises.
    """
    export = torch("torch.export")
    with _export_lock:
        program = export.load(str(path))
        found = {item.device.type for item in (*program.state_dict.values(), *_constants(program))}
        if device is not None and (found - {device.type} or device.type != "cpu"):
            program = torch("torch.export.passes").move_to_device_pass(program, str(device))
        return _Exported(program.module(), program)


def _constants(program: Any) -> list[Any]:
    return [item for item in program.constants.values() if isinstance(item, torch().Tensor)]


def _parsed(inputs: str, outputs: str) -> CallSpec:
    try:
        return parse_call_spec(inputs, outputs)
    except ValueError as error:
        raise ModelLoadError(f"the archive cannot be served: {error}") from error
