"""Which tensor of a config is which tensor of a PT2 archive, and whether the two fit.

Pure; load threads. Source: spec PT-09..14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.config.decode import ModelSpec
from serving.config.signature import Signature, TensorSignature
from serving.config.signature_pt2 import CompiledInput
from serving.config.torch_call_spec import CallSpec, ordinal_names, positions
from serving.errors import InvalidArgumentError, UnsupportedError

_MOST_NAMES = 16


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How the tensors of a batch become the tensors of a call, and back."""

    inputs: tuple[str, ...]
    """Names of the config, in the order of the call."""
    outputs: Mapping[str, int]
    """Name of the config -> number of the result."""


def plan_call(spec: ModelSpec, call_spec: CallSpec) -> CallPlan:
    """Raises: ServingError naming what in the config is not possible with this archive."""
    _refuse_unsupported(spec, call_spec)
    made = [name for item in spec.batch_inputs for name in item.names]
    places = positions("input", [*spec.backend_inputs, *made], call_spec.inputs)
    order = _ordered(places, call_spec.inputs)
    for name, item in spec.inputs.items():
        if item.is_optional:
            raise InvalidArgumentError(
                f"input '{name}' is optional, and a PT2 archive takes every tensor that it was "
                "exported with: remove optional"
            )
    return CallPlan(order, positions("output", spec.backend_outputs, call_spec.outputs))


def _refuse_unsupported(spec: ModelSpec, call_spec: CallSpec) -> None:
    """PT-14."""
    for kind, items in (("input", spec.backend_inputs), ("output", spec.backend_outputs)):
        for name, item in items.items():
            if item.datatype.is_bytes:
                raise UnsupportedError(
                    f"{kind} '{name}' is TYPE_STRING, and PT2 archives take and return tensors of "
                    "numbers only: give each text a number before it is sent, and a sequence a "
                    "correlation ID of a numeric data_type"
                )
    if spec.has_batch_axis and call_spec.nested:
        raise UnsupportedError(
            f"max_batch_size is {spec.max_batch_size}, and batching is for models whose forward "
            f"takes and returns plain tensors: '{call_spec.nested[0]}' lies in a nested structure; "
            "set max_batch_size: 0"
        )


def _ordered(places: Mapping[str, int], forward_names: Sequence[str]) -> tuple[str, ...]:
    names: list[str | None] = [None] * len(forward_names)
    for name, place in places.items():
        other = names[place]
        if other is not None:
            raise InvalidArgumentError(
                f"inputs '{other}' and '{name}' are both {forward_names[place]}: remove one"
            )
        names[place] = name
    missing = [place for place, name in enumerate(names) if name is None]
    if missing:
        listed = ", ".join(
            f"INPUT__{place} or {forward_names[place]}" for place in missing[:_MOST_NAMES]
        )
        raise InvalidArgumentError(
            f"configuration expects {len(places)} inputs, model provides {len(names)}: declare "
            f"{listed}"
        )
    return tuple(name for name in names if name is not None)


def check_inputs(spec: ModelSpec, plan: CallPlan, expected: Sequence[CompiledInput]) -> None:
    """Types and dims of the config against what the archive was exported with.

    Raises: InvalidArgumentError, UnsupportedError.
    """
    for name, wanted in zip(plan.inputs, expected, strict=True):
        if not wanted.is_row_major:
            raise UnsupportedError(
                f"input '{name}' was exported with a sample whose elements do not lie row by row "
                f"(strides {[item or '?' for item in wanted.strides]}): export with "
                "sample.contiguous()"
            )
        item = spec.backend_inputs.get(name)
        if item is None:
            continue  # made by batch_input
        dims = item.dims if item.reshape is None else item.reshape
        problem = wanted.problem_with(item.datatype, dims, has_batch_axis=spec.has_batch_axis)
        if problem:
            raise InvalidArgumentError(
                f"input '{name}': {problem}, and the archive was exported for {wanted.described}"
            )


def check_outputs(spec: ModelSpec, plan: CallPlan, results: Sequence[TensorSignature]) -> None:
    """Of an exported program, which tells its results. Raises: InvalidArgumentError."""
    for name, place in plan.outputs.items():
        datatype, told = spec.backend_outputs[name].datatype, results[place].datatype
        if datatype != told:
            raise InvalidArgumentError(
                f"output '{name}': configuration expects datatype {datatype.config_name}, model "
                f"provides {told.config_name}"
            )


def expected_of(signature: Signature) -> tuple[CompiledInput, ...]:
    """What an exported program takes."""
    return tuple(
        CompiledInput(
            item.datatype,
            tuple(max(size, 0) for size in item.shape),
            tuple(size if size >= 0 else None for size in item.shape),
            (None,) * len(item.shape),
        )
        for item in signature.inputs
    )


def not_completed(call_spec: CallSpec, expected: Sequence[CompiledInput] | None) -> str:
    """Why a config without inputs or outputs stays so, and what to write."""
    inputs = [
        f"{a} or {b}"
        for a, b in zip(
            ordinal_names("INPUT", len(call_spec.inputs)), call_spec.inputs, strict=True
        )
    ]
    if expected is not None:
        inputs = [f"{name} ({item.described})" for name, item in zip(inputs, expected, strict=True)]
    outputs = [
        f"{a} or {b}"
        for a, b in zip(
            ordinal_names("OUTPUT", len(call_spec.outputs)), call_spec.outputs, strict=True
        )
    ]
    return (
        "compiled code does not tell the data types of its outputs, so that its config cannot be "
        f"completed: declare the inputs {_listed(inputs)} and the outputs {_listed(outputs)}"
    )


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_MOST_NAMES])
    return f"{shown} and {len(texts) - _MOST_NAMES} more" if len(texts) > _MOST_NAMES else shown
