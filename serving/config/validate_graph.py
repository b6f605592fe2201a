"""Rules between an ensemble and the models that its steps name (VAL-70..79).

Pure functions over a set of completed configs; any thread. What an ensemble says wrong by itself is
in `validate_ensemble`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from serving.config.backend_files import ENSEMBLE
from serving.config.findings import Finding, Severity
from serving.config.protobuf import pb
from serving.config.schema import map_path
from serving.config.suggest import nearest
from serving.datatypes import BY_CONFIG_NUMBER

_STEPS = "ensemble_scheduling.step"
REQUEST = -1
"""Stands for the request itself where tensors name the step that they stem from."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An ensemble tensor as one model declares it."""

    owner: str
    datatype: int
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]


@dataclass(slots=True)
class _Models:
    configs: Mapping[str, pb.ModelConfig]
    unavailable: set[str]
    versions: Mapping[str, Collection[int]]
    decoupled: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Check:
    """One ensemble being checked."""

    name: str
    config: pb.ModelConfig
    models: _Models
    findings: list[Finding] = field(default_factory=list)
    tensors: dict[str, _Tensor] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)
    """Ensemble tensor -> decoupled step that it stems from, or REQUEST."""

    def error(self, path: str, message: str, hint: str, code: str) -> None:
        words = f"in ensemble '{self.name}', {message}"
        self.findings.append(Finding(Severity.ERROR, words, hint, path, code=code))

    @property
    def steps(self) -> Sequence[pb.ModelEnsembling.Step]:
        steps: Sequence[pb.ModelEnsembling.Step] = self.config.ensemble_scheduling.step
        return steps


def validate_ensemble_graph(
    configs: Mapping[str, pb.ModelConfig],
    *,
    unavailable: Collection[str] = (),
    versions: Mapping[str, Collection[int]] | None = None,
    only: str = "",
) -> dict[str, list[Finding]]:
    """Check every ensemble of `configs` (model name -> completed config) against its parts.

    `unavailable` names models that cannot load for reasons of their own; `versions` says which
    versions of a model are served, where that is known. `only`: check this ensemble, the others are
    known to be sound. Returns the findings by ensemble, without lines: fields name the places.
    """
    models = _Models(configs, set(unavailable), versions or {})
    models.decoupled |= {
        name for name, config in configs.items() if config.model_transaction_policy.decoupled
    }
    found: dict[str, list[Finding]] = {}
    for name in [only] if only else _parts_first(configs):
        check = _Check(name, configs[name], models)
        _check(check)
        if any(item.severity is Severity.ERROR for item in check.findings):
            models.unavailable.add(name)
        if check.findings:
            found[name] = check.findings
    return found


def is_ensemble(config: pb.ModelConfig) -> bool:
    platform: str = config.platform
    return platform == ENSEMBLE or bool(config.HasField("ensemble_scheduling"))


def _parts_of(configs: Mapping[str, pb.ModelConfig], name: str) -> list[str]:
    """Ensembles that the ensemble `name` calls."""
    called = [step.model_name for step in configs[name].ensemble_scheduling.step]
    return [
        part for part in dict.fromkeys(called) if part in configs and is_ensemble(configs[part])
    ]


def _parts_first(configs: Mapping[str, pb.ModelConfig]) -> Iterator[str]:
    """The ensembles, each behind those that it calls (as far as there is no cycle)."""
    done: set[str] = set()
    for root in sorted(name for name, config in configs.items() if is_ensemble(config)):
        pending = [(root, False)]
        entered: set[str] = set()
        while pending:
            name, is_left = pending.pop()
            if name in done:
                continue
            if is_left or name in entered:
                done.add(name)
                yield name
                continue
            entered.add(name)
            pending.append((name, True))
            pending += [(part, False) for part in _parts_of(configs, name) if part not in entered]


def _check(check: _Check) -> None:
    cycle = _cycle_through(check.models.configs, check.name)
    if cycle:
        index = next(i for i, step in enumerate(check.steps) if step.model_name == cycle[1])
        check.error(
            f"{_STEPS}[{index}].model_name",
            f"there is a circular dependency between ensembles: {' -> '.join(cycle)}",
            "let no ensemble call itself, directly or through others",
            "VAL-72",
        )
        return
    batching = check.config.max_batch_size > 0
    for item in check.config.input:
        check.tensors[item.name] = _tensor(check.name, item, batching)
        check.origins[item.name] = REQUEST
    for item in check.config.output:
        check.tensors[item.name] = _tensor(check.name, item, batching)
    parts = dict(_available_parts(check))
    for index, part in parts.items():
        _check_batch_size(check, index, part)
        _check_inputs(check, index, part)
        _check_outputs(check, index, part)
        _check_cache(check, index, part)
    if len(parts) == len(check.steps):
        _check_decoupled(check)


def _cycle_through(configs: Mapping[str, pb.ModelConfig], name: str) -> list[str]:
    """The shortest way from the ensemble back to itself, or []."""
    ways = [[name]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for part in _parts_of(configs, way[-1]):
            if part == name:
                return [*way, part]
            if part not in seen:
                seen.add(part)
                ways.append([*way, part])
    return []


def _available_parts(check: _Check) -> Iterator[tuple[int, pb.ModelConfig]]:
    models = check.models
    for index, step in enumerate(check.steps):
        name, path = step.model_name, f"{_STEPS}[{index}].model_name"
        part = models.configs.get(name)
        if not name:
            continue
        if part is None:
            close = nearest(name, models.configs)
            check.error(
                path,
                f"step {index} contains models that are not available: '{name}'",
                f"did you mean '{close}'?" if close else f"put a model '{name}' beside it",
                "VAL-70",
            )
            continue
        problem = _problem_of(models, step)
        if problem:
            check.error(
                path,
                f"step {index} depends on '{name}' {problem}",
                "write model_version: -1 for its newest version"
                if "version" in problem and "no loaded" not in problem
                else f"mend the model '{name}' first",
                "VAL-71",
            )
        if name not in models.unavailable:
            yield index, part


def _problem_of(models: _Models, step: pb.ModelEnsembling.Step) -> str:
    name = step.model_name
    if name in models.unavailable:
        return "which is not valid"
    versions = models.versions.get(name)
    if versions is None:
        return f"whose version {step.model_version} cannot be" if step.model_version < -1 else ""
    if not versions:
        return "which has no loaded version"
    if step.model_version != -1 and step.model_version not in versions:
        served = ", ".join(str(version) for version in sorted(versions))
        return f"whose required version {step.model_version} is not loaded (served: {served})"
    return ""


def _check_batch_size(check: _Check, index: int, part: pb.ModelConfig) -> None:
    own, limit = check.config.max_batch_size, part.max_batch_size
    if 0 < limit < own:
        check.error(
            "max_batch_size",
            f"max_batch_size is {own}, but step {index} calls '{part.name}', which allows maximum "
            f"batch size {limit}",
            f"set max_batch_size: {limit} here, or raise it in '{part.name}'",
            "VAL-73",
        )


def _check_inputs(check: _Check, index: int, part: pb.ModelConfig) -> None:
    step = check.steps[index]
    declared = {item.name: item for item in part.input}
    for name, tensor in step.input_map.items():
        place = map_path(f"{_STEPS}[{index}].input_map", name)
        item = declared.get(name)
        if item is None:
            check.error(
                place,
                f"ensemble tensor '{tensor}' is mapping to non-existing input '{name}' of model "
                f"'{part.name}'",
                _names_hint(name, "inputs", part.name, list(declared)),
                "VAL-74",
            )
        else:
            _check_edge(check, place, tensor, _tensor(part.name, item, part.max_batch_size > 0))
    for item in part.input:
        if item.name not in step.input_map and not item.optional:
            check.error(
                f"{_STEPS}[{index}]",
                f"input '{item.name}' of model '{part.name}' is not mapped to any ensemble tensors",
                f'add input_map {{ key: "{item.name}" value: ... }} to step {index}',
                "VAL-75",
            )


def _check_outputs(check: _Check, index: int, part: pb.ModelConfig) -> None:
    declared = {item.name: item for item in part.output}
    for name, tensor in check.steps[index].output_map.items():
        place = map_path(f"{_STEPS}[{index}].output_map", name)
        item = declared.get(name)
        if item is None:
            check.error(
                place,
                f"ensemble tensor '{tensor}' is mapped from non-existing output '{name}' of model "
                f"'{part.name}'",
                _names_hint(name, "outputs", part.name, list(declared)),
                "VAL-74",
            )
        else:
            _check_edge(check, place, tensor, _tensor(part.name, item, part.max_batch_size > 0))


def _check_cache(check: _Check, index: int, part: pb.ModelConfig) -> None:
    """A cached answer would be that of another sequence, or of another place in it."""
    if check.config.response_cache.enable and part.HasField("sequence_batching"):
        check.error(
            "response_cache.enable",
            f"Response Cache does not support step {index}, whose model '{part.name}' has sequence "
            "batching",
            "remove response_cache here; parts without sequences may have one of their own",
            "VAL-14",
        )


def _names_hint(name: str, kind: str, model: str, names: list[str]) -> str:
    close = nearest(name, names)
    if close:
        return f"did you mean '{close}'?"
    return f"{kind} of '{model}': {', '.join(names) or 'none'}"


def _tensor(owner: str, item: pb.ModelInput | pb.ModelOutput, batching: bool) -> _Tensor:
    dims = tuple(item.dims)
    return _Tensor(owner, item.data_type, dims, (-1, *dims) if batching else dims)


def _check_edge(check: _Check, place: str, name: str, tensor: _Tensor) -> None:
    known = check.tensors.setdefault(name, tensor)
    if known.datatype != tensor.datatype:
        check.error(
            place,
            f"ensemble tensor '{name}' has an inconsistent data type: {_type_name(known)} in "
            f"'{known.owner}' and {_type_name(tensor)} in '{tensor.owner}'",
            "both ends of an edge need one data_type: cast it in a model between them",
            "VAL-76",
        )
    elif not _match(known.dims, tensor.dims) and not _match(known.full_dims, tensor.full_dims):
        check.error(
            place,
            f"ensemble tensor '{name}' has an inconsistent shape: {list(known.full_dims)} in "
            f"'{known.owner}' and {list(tensor.full_dims)} in '{tensor.owner}'",
            "both ends of an edge need one shape; -1 fits any size",
            "VAL-77",
        )


def _type_name(tensor: _Tensor) -> str:
    known = BY_CONFIG_NUMBER.get(tensor.datatype)
    return known.config_name if known is not None else str(tensor.datatype)


def _match(left: Sequence[int], right: Sequence[int]) -> bool:
    return len(left) == len(right) and all(
        a == b or -1 in (a, b) for a, b in zip(left, right, strict=True)
    )


def _check_decoupled(check: _Check) -> None:
    """Where do the tensors stem from; and is the ensemble decoupled by one of its parts."""
    waiting = dict(enumerate(check.steps))
    while ready := [index for index, step in waiting.items() if _can_run(check, step)]:
        for index in ready:
            step = waiting.pop(index)
            origins = {check.origins[tensor] for tensor in step.input_map.values()}
            if len(origins) > 1:
                check.error(
                    f"{_STEPS}[{index}]",
                    f"step {index} of model '{step.model_name}' receives inputs originated from "
                    f"different decoupled models",
                    "let all inputs of a step stem from one decoupled model, or from none",
                    "VAL-78",
                )
            is_decoupled = step.model_name in check.models.decoupled
            origin = index if is_decoupled else min(origins, default=REQUEST)
            for tensor in step.output_map.values():
                check.origins.setdefault(tensor, origin)
    _check_origins_of_outputs(check)
    decoupled = [
        step.model_name for step in check.steps if step.model_name in check.models.decoupled
    ]
    if decoupled and check.name not in check.models.decoupled:
        check.models.decoupled.add(check.name)
        words = f"the ensemble is decoupled, because its model '{decoupled[0]}' is"
        check.findings.append(Finding(Severity.NOTE, words, "", _STEPS, code="VAL-79"))


def _check_origins_of_outputs(check: _Check) -> None:
    """An answer holds all outputs: there must be one of each for every response of one model."""
    outputs = check.config.output
    known = [(index, item.name) for index, item in enumerate(outputs) if item.name in check.origins]
    origins = {check.origins[name] for _, name in known}
    if len(origins) <= 1:
        return
    told = ", ".join(f"'{name}' from {_origin_words(check, name)}" for _, name in known)
    index = next(i for i, name in known if check.origins[name] != check.origins[known[0][1]])
    check.error(
        f"output[{index}]",
        f"the outputs are originated from different decoupled models: {told}",
        "let all outputs stem from one decoupled model, or from none",
        "VAL-78",
    )


def _origin_words(check: _Check, tensor: str) -> str:
    origin = check.origins[tensor]
    if origin == REQUEST:
        return "the request"
    return f"step {origin} of model '{check.steps[origin].model_name}'"


def _can_run(check: _Check, step: pb.ModelEnsembling.Step) -> bool:
    return all(tensor in check.origins for tensor in step.input_map.values())
