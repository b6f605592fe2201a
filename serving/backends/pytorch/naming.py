"""Which input of a config is which argument of forward, and which output which result.

Three conventions, each for all inputs (or outputs) of a model or for none of them: the names are
the arguments', or end in `__<index>`, or the order in the config is the order. Pure functions; load
threads. Source: spec PT-02..05, PT-07, PT-08.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.config.decode import ModelSpec, TensorSpec
from serving.config.torch_call_spec import ordinal_of
from serving.errors import InternalError, InvalidArgumentError

logger = logging.getLogger(__name__)


class Convention(enum.Enum):
    ARGUMENT = "the names of forward's arguments"
    INDEX = "<name>__<index>"
    ORDER = "the order in the config"


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of forward."""

    name: str
    kind: str
    """Tensor, List[str], Dict[str, Tensor], int, ... as TorchScript writes it."""
    default: object = None
    is_optional: bool = False
    """It has a default, or may be None."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How the tensors of a batch become the arguments of forward."""

    arguments: tuple[Argument, ...] = ()
    names: tuple[str | None, ...] = ()
    """For each argument the input that it takes; None: its default."""
    is_dictionary: bool = False
    """One argument, a dictionary of all inputs by their names."""


def plan_call(spec: ModelSpec, arguments: Sequence[Argument]) -> CallPlan:
    """Raises: InvalidArgumentError, InternalError, as Triton's backend does at load."""
    if not spec.inputs:
        raise InternalError(none_specified(spec, "input"))
    for item in spec.backend_inputs.values():
        check_strings(spec, item, "input")
    if len(arguments) == 1 and arguments[0].kind.startswith("Dict"):
        _check_states(spec, "input", Convention.INDEX)
        return CallPlan(tuple(arguments), is_dictionary=True)
    _check_kinds(spec, arguments)
    places = _input_places(spec, [item.name for item in arguments])
    _check_count(spec, arguments, len(places))
    names: list[str | None] = [None] * len(arguments)
    for name, place in places.items():
        if place >= len(arguments):
            raise InvalidArgumentError(
                f"unable to load model '{spec.name}', input '{name}' is number {place}, counted "
                f"from 0, and forward{_shown(arguments)} has {len(arguments)} arguments"
            )
        if names[place] is not None:
            raise InvalidArgumentError(
                f"unable to load model '{spec.name}', inputs '{names[place]}' and '{name}' are "
                f"both argument {place} of forward"
            )
        names[place] = name
    for argument, found in zip(arguments, names, strict=True):
        _check_argument(spec, argument, found)
    return CallPlan(tuple(arguments), tuple(names))


def output_places(spec: ModelSpec) -> dict[str, int]:
    """For each output of the backend the number of the result that it is.

    Raises: InternalError, InvalidArgumentError.
    """
    if not spec.outputs:
        raise InternalError(none_specified(spec, "output"))
    for item in spec.backend_outputs.values():
        check_strings(spec, item, "output")
    convention = _convention(spec, "output", spec.outputs, ())
    _check_states(spec, "output", convention)
    return _places(spec.backend_outputs, (), convention)


def check_strings(spec: ModelSpec, item: TensorSpec, kind: str) -> None:
    """PT-08. Raises: InternalError for a string tensor of two dimensions or more."""
    shape = item.dims if item.reshape is None else item.reshape
    if item.datatype.is_bytes and len(shape) > 1:
        raise InternalError(
            f"Triton only supports 1 dimensional List of String as {kind} for '{item.name}' for "
            f"model '{spec.name}': give it dims of one dimension"
        )


def _input_places(spec: ModelSpec, arguments: Sequence[str]) -> dict[str, int]:
    convention = _convention(spec, "input", spec.inputs, arguments)
    _check_states(spec, "input", convention)
    made = [name for item in spec.batch_inputs for name in item.names]
    places = _places([*spec.inputs, *made], arguments, convention)
    for control in spec.sequence_batching.controls:
        index = ordinal_of(control.name)
        if index is None and convention is Convention.ARGUMENT and control.name in arguments:
            index = arguments.index(control.name)
        if index is None:
            raise InternalError(
                f"input '{control.name}' does not follow <name>__<index> naming convention: the "
                f"controls of a sequence model must, e.g. '{control.name}__{len(spec.inputs)}'"
            )
        places[control.name] = index
    for state in spec.states:
        index = ordinal_of(state.input_name)
        assert index is not None
        places[state.input_name] = index
    return places


def _convention(
    spec: ModelSpec, kind: str, names: Iterable[str], arguments: Sequence[str]
) -> Convention:
    names = list(names)
    if arguments and set(names) <= set(arguments):
        return Convention.ARGUMENT
    odd = next((name for name in names if ordinal_of(name) is None), None)
    if odd is None:
        return Convention.INDEX
    nor = "are neither an input argument to the model nor do they" if kind == "input" else "do not"
    logger.warning(
        "%s '%s' or previous %s(s) of the model '%s' %s follow the <name>__<index> naming "
        "convention. Falling back to enforcing strict ordering from model configuration.",
        kind,
        odd,
        kind,
        spec.name,
        nor,
    )
    return Convention.ORDER


def _places(
    names: Iterable[str], arguments: Sequence[str], convention: Convention
) -> dict[str, int]:
    if convention is Convention.ARGUMENT:
        found = {name: arguments.index(name) for name in names if name in arguments}
        return found | {
            name: index
            for name in names
            if name not in found and (index := ordinal_of(name)) is not None
        }
    if convention is Convention.INDEX:
        indices = ((name, ordinal_of(name)) for name in names)
        return {name: index for name, index in indices if index is not None}
    return {name: index for index, name in enumerate(names)}


def _check_states(spec: ModelSpec, kind: str, convention: Convention) -> None:
    """PT-07."""
    if not spec.states:
        return
    using = f"PyTorch model '{spec.name}' is using sequence batching with state but"
    for state in spec.states:
        name = state.input_name if kind == "input" else state.output_name
        if ordinal_of(name) is None:
            raise InvalidArgumentError(
                f"{using} state '{name}' does not follow the <name>__<index> naming convention"
            )
    if convention is not Convention.INDEX:
        raise InvalidArgumentError(
            f"{using} not all inputs/outputs follow the <name>__<index> naming convention: rename "
            f"the {kind}s, e.g. {kind.upper()}__0"
        )


def _check_kinds(spec: ModelSpec, arguments: Sequence[Argument]) -> None:
    """PT-05."""
    if sum(item.kind.startswith("Dict") for item in arguments) > 1:
        raise InternalError(
            f"unable to load model '{spec.name}': Multiple inputs of kind DictType were detected. "
            "Only a single input of type Dict(str, Tensor) is supported."
        )
    for item in arguments:
        if item.kind not in ("Tensor", "List[str]") and not item.is_optional:
            raise InternalError(
                f"unable to load model '{spec.name}': An input of type '{item.kind}' was detected "
                "in the model. Only a single input of type Dict(str, Tensor) or input(s) of type "
                "Tensor are supported."
            )


def _check_count(spec: ModelSpec, arguments: Sequence[Argument], count: int) -> None:
    required = sum(not item.is_optional for item in arguments)
    if not required <= count <= len(arguments):
        raise InvalidArgumentError(
            f"unable to load model '{spec.name}', configuration expects {count} inputs, model "
            f"provides {len(arguments)}: forward{_shown(arguments)}"
        )


def _check_argument(spec: ModelSpec, argument: Argument, name: str | None) -> None:
    if name is None:
        if not argument.is_optional:
            raise InvalidArgumentError(
                f"unable to load model '{spec.name}', argument '{argument.name}' of forward has no "
                "input in the configuration"
            )
        return
    item = spec.backend_inputs.get(name)
    if item is None:
        return  # made by batch_input: numbers
    wanted = "List[str]" if item.datatype.is_bytes else "Tensor"
    if argument.kind != wanted:
        raise InvalidArgumentError(
            f"unable to load model '{spec.name}', input '{name}' is {item.datatype.config_name} "
            f"in the configuration, and argument '{argument.name}' of forward is {argument.kind}"
        )
    if item.is_optional and not argument.is_optional:
        raise InvalidArgumentError(
            f"unable to load model '{spec.name}', input '{name}' is optional in the configuration, "
            f"and argument '{argument.name}' of forward is not: give it a default, or declare it "
            "Optional"
        )


def none_specified(spec: ModelSpec, kind: str) -> str:
    """AUT-07."""
    return (
        f"unable to load model '{spec.name}': model configuration must contain at least one "
        f"{kind}, none were specified; files of PyTorch do not tell them"
    )


def _shown(arguments: Sequence[Argument]) -> str:
    return f"({', '.join(f'{item.name}: {item.kind}' for item in arguments)})"
