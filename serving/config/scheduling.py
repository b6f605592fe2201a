"""The decoded, frozen form of sequences, ensembles, ragged batches and resources in a config.

Part of `serving.config.decode`, which says when to decode. Pure; any thread.
Source: spec CFG- rows of sequence_batching, ensemble_scheduling, batch_input, rate_limiter.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from serving.config.protobuf import pb
from serving.datatypes import BY_CONFIG_NUMBER, DataType


class ControlKind(enum.Enum):
    START = "CONTROL_SEQUENCE_START"
    READY = "CONTROL_SEQUENCE_READY"
    END = "CONTROL_SEQUENCE_END"
    CORRID = "CONTROL_SEQUENCE_CORRID"


class Strategy(enum.Enum):
    DIRECT = "direct"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class SequenceControl:
    """One tensor that tells the model about the sequence; shape [1] for each request."""

    name: str
    kind: ControlKind
    datatype: DataType
    false_value: int | float | bool = 0
    true_value: int | float | bool = 1
    """Both meaningless for CORRID, whose value is the correlation id."""


@dataclass(frozen=True, slots=True)
class InitialState:
    name: str
    datatype: DataType
    dims: tuple[int, ...]
    data_file: str = ""
    """File under initial_state/; empty for zeros."""


@dataclass(frozen=True, slots=True)
class SequenceState:
    """`output_name` of one request is `input_name` of the next of the same sequence."""

    input_name: str
    output_name: str
    datatype: DataType
    dims: tuple[int, ...]
    """Without the batch axis; -1 is any."""
    initial: InitialState | None = None


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    strategy: Strategy = Strategy.DIRECT
    max_idle_us: int = 1_000_000
    controls: tuple[SequenceControl, ...] = ()
    states: tuple[SequenceState, ...] = ()
    is_iterative: bool = False
    minimum_slot_utilization: float = 0.0
    """Direct: share of the slots that must be ready before the delay is over."""
    max_candidate_sequences: int = 0
    """Oldest: sequences of one instance; 0 stands for max_batch_size."""
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    """Of the strategy chosen."""
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    model_name: str
    model_version: int
    """-1: the highest ready one."""
    input_map: Mapping[str, str]
    """Input of the model -> tensor of the ensemble."""
    output_map: Mapping[str, str]
    """Output of the model -> tensor of the ensemble."""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Ensemble:
    steps: tuple[EnsembleStep, ...] = ()
    max_inflight_requests: int = 0
    """For each step; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """A tensor made from the requests of a batch. `kind` as in the config, BATCH_..."""

    kind: str
    names: tuple[str, ...]
    datatype: DataType
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """Outputs cut into answers by a rule of their own. `kind` as in the config, BATCH_..."""

    kind: str
    names: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    is_global: bool
    count: int


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What an instance needs to execute, and its weight: 2 gets half the turns of 1."""

    resources: tuple[Resource, ...] = ()
    priority: int = 1


def sequence_batching(item: pb.ModelSequenceBatching) -> SequenceBatching:
    is_oldest = item.WhichOneof("strategy_choice") == "oldest"
    return SequenceBatching(
        strategy=Strategy.OLDEST if is_oldest else Strategy.DIRECT,
        max_idle_us=item.max_sequence_idle_microseconds or 1_000_000,
        controls=tuple(
            _control(entry.name, control)
            for entry in item.control_input
            for control in entry.control
        ),
        states=tuple(map(_state, item.state)),
        is_iterative=item.iterative_sequence,
        minimum_slot_utilization=item.direct.minimum_slot_utilization,
        max_candidate_sequences=item.oldest.max_candidate_sequences,
        preferred_batch_sizes=tuple(sorted(item.oldest.preferred_batch_size)),
        max_queue_delay_us=(
            item.oldest.max_queue_delay_microseconds
            if is_oldest
            else item.direct.max_queue_delay_microseconds
        ),
        preserve_ordering=item.oldest.preserve_ordering,
    )


def _control(name: str, item: pb.ModelSequenceBatching.Control) -> SequenceControl:
    kind = ControlKind(pb.ModelSequenceBatching.Control.Kind.Name(item.kind))
    if kind is ControlKind.CORRID:
        return SequenceControl(name, kind, _datatype(item.data_type, name))
    pairs = {
        pb.TYPE_INT32: item.int32_false_true,
        pb.TYPE_FP32: item.fp32_false_true,
        pb.TYPE_BOOL: item.bool_false_true,
    }
    for number, pair in pairs.items():
        if len(pair) == 2:
            return SequenceControl(name, kind, BY_CONFIG_NUMBER[number], pair[0], pair[1])
    raise ValueError(f"control input '{name}' must give a false and a true value")


def _state(item: pb.ModelSequenceBatching.State) -> SequenceState:
    initial = None
    if item.initial_state:
        first = item.initial_state[0]
        initial = InitialState(
            first.name, _datatype(first.data_type, first.name), tuple(first.dims), first.data_file
        )
    return SequenceState(
        item.input_name,
        item.output_name,
        _datatype(item.data_type, item.input_name),
        tuple(item.dims),
        initial,
    )


def ensemble(item: pb.ModelEnsembling) -> Ensemble:
    return Ensemble(
        tuple(
            EnsembleStep(
                step.model_name,
                step.model_version or -1,
                dict(step.input_map),
                dict(step.output_map),
                step.model_namespace,
            )
            for step in item.step
        ),
        item.max_inflight_requests,
    )


def batch_input(item: pb.BatchInput) -> BatchInput:
    return BatchInput(
        pb.BatchInput.Kind.Name(item.kind),
        tuple(item.target_name),
        _datatype(item.data_type, ", ".join(item.target_name)),
        tuple(item.source_input),
    )


def batch_output(item: pb.BatchOutput) -> BatchOutput:
    return BatchOutput(
        pb.BatchOutput.Kind.Name(item.kind), tuple(item.target_name), tuple(item.source_input)
    )


def rate_limit(item: pb.ModelRateLimiter) -> RateLimit:
    resources = tuple(
        Resource(entry.name, getattr(entry, "global"), entry.count) for entry in item.resources
    )
    return RateLimit(resources, item.priority or 1)


def _datatype(number: int, tensor: str) -> DataType:
    datatype = BY_CONFIG_NUMBER.get(number)
    if datatype is None:
        raise ValueError(f"tensor '{tensor}' has no data_type")
    return datatype
