"""ModelSpec: the decoded, frozen form of a complete ModelConfig that the running half works with.

The protobuf message stays the truth for `GET /config`; this holds what schedulers, instances and
request checks read, with enums and defaults resolved. Decode only complete configs (see
`serving.config.complete`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.config import scheduling
from serving.config.protobuf import pb
from serving.config.scheduling import (
    BatchInput,
    BatchOutput,
    Ensemble,
    RateLimit,
    SequenceBatching,
    SequenceState,
)
from serving.datatypes import BY_CONFIG_NUMBER, DataType


class SchedulerKind(enum.Enum):
    DEFAULT = "default"
    DYNAMIC = "dynamic_batching"
    SEQUENCE = "sequence_batching"
    ENSEMBLE = "ensemble_scheduling"


class InstanceKind(enum.Enum):
    AUTO = "KIND_AUTO"
    GPU = "KIND_GPU"
    CPU = "KIND_CPU"
    MODEL = "KIND_MODEL"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    name: str
    datatype: DataType
    dims: tuple[int, ...]
    """As in the config: without the batch axis where max_batch_size > 0; -1 is any."""
    reshape: tuple[int, ...] | None = None
    """Shape given to (input) or taken from (output) the backend, without the batch axis."""
    is_optional: bool = False
    allow_ragged_batch: bool = False
    label_filename: str = ""
    is_shape_tensor: bool = False


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    timeout_action_delay: bool = False
    default_timeout_us: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policy: Mapping[int, QueuePolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    name: str
    kind: InstanceKind
    count: int
    gpus: tuple[int, ...] = ()
    passive: bool = False
    profiles: tuple[str, ...] = ()
    host_policy: str = ""
    secondary_devices: tuple[str, ...] = ()
    """As "KIND_NVDLA:0"."""
    rate_limit: RateLimit = RateLimit()


@dataclass(frozen=True, slots=True)
class WarmupInput:
    name: str
    datatype: DataType
    dims: tuple[int, ...]
    zero_data: bool = False
    random_data: bool = False
    input_data_file: str = ""


@dataclass(frozen=True, slots=True)
class WarmupSample:
    name: str
    batch_size: int
    count: int
    inputs: tuple[WarmupInput, ...]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    name: str
    backend: str
    platform: str
    max_batch_size: int
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    scheduler: SchedulerKind
    dynamic_batching: DynamicBatching
    instance_groups: tuple[InstanceGroup, ...]
    parameters: Mapping[str, str]
    metric_tags: Mapping[str, str]
    warmup: tuple[WarmupSample, ...]
    is_decoupled: bool
    default_model_filename: str
    response_cache: bool
    sequence_batching: SequenceBatching = SequenceBatching()
    """Of a model whose scheduler is SEQUENCE."""
    ensemble: Ensemble = Ensemble()
    """Of a model whose scheduler is ENSEMBLE."""
    batch_inputs: tuple[BatchInput, ...] = ()
    batch_outputs: tuple[BatchOutput, ...] = ()
    histogram_buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Metric family -> upper bounds, rising (model_metrics)."""

    @property
    def has_batch_axis(self) -> bool:
        return self.max_batch_size > 0

    @property
    def states(self) -> tuple[SequenceState, ...]:
        """Implicit state; empty for everything but sequence models. A state that the config gives
        one name only has no effect."""
        states = self.sequence_batching.states
        return tuple(item for item in states if item.input_name and item.output_name)

    @property
    def sequence_slots(self) -> int:
        """How many sequences one instance serves at a time."""
        batching = self.sequence_batching
        if batching.strategy is scheduling.Strategy.OLDEST and batching.max_candidate_sequences > 0:
            return batching.max_candidate_sequences
        return max(1, self.max_batch_size)

    @property
    def backend_inputs(self) -> dict[str, TensorSpec]:
        """What the model itself is given: the inputs of a request, and the controls and states
        that the sequence batcher adds."""
        tensors = dict(self.inputs)
        for control in self.sequence_batching.controls:
            tensors[control.name] = TensorSpec(control.name, control.datatype, (1,))
        for state in self.states:
            tensors[state.input_name] = TensorSpec(state.input_name, state.datatype, state.dims)
        return tensors

    @property
    def backend_outputs(self) -> dict[str, TensorSpec]:
        """What the model itself gives: the outputs for callers, and the states besides."""
        tensors = dict(self.outputs)
        for state in self.states:
            if state.output_name not in tensors:
                name = state.output_name
                tensors[name] = TensorSpec(name, state.datatype, state.dims)
        return tensors

    def metadata_shape(self, tensor: TensorSpec) -> tuple[int, ...]:
        """Shape as metadata shows it: -1 first where there is a batch axis."""
        return (-1, *tensor.dims) if self.has_batch_axis else tensor.dims


def decode(config: pb.ModelConfig) -> ModelSpec:
    """Decode a complete config. Raises ValueError on values that validation would have refused."""
    return ModelSpec(
        name=config.name,
        backend=config.backend,
        platform=config.platform,
        max_batch_size=config.max_batch_size,
        inputs={item.name: _input(item) for item in config.input},
        outputs={item.name: _output(item) for item in config.output},
        scheduler=SchedulerKind(config.WhichOneof("scheduling_choice") or "default"),
        dynamic_batching=_dynamic(config.dynamic_batching),
        instance_groups=tuple(_group(item) for item in config.instance_group),
        parameters={key: item.string_value for key, item in config.parameters.items()},
        metric_tags=dict(config.metric_tags),
        warmup=tuple(_warmup(item) for item in config.model_warmup),
        is_decoupled=config.model_transaction_policy.decoupled,
        default_model_filename=config.default_model_filename,
        response_cache=config.response_cache.enable,
        sequence_batching=scheduling.sequence_batching(config.sequence_batching),
        ensemble=scheduling.ensemble(config.ensemble_scheduling),
        batch_inputs=tuple(map(scheduling.batch_input, config.batch_input)),
        batch_outputs=tuple(map(scheduling.batch_output, config.batch_output)),
        histogram_buckets={
            item.metric_identifier.family: tuple(sorted(set(item.histogram_options.buckets)))
            for item in config.model_metrics.metric_control
        },
    )


def _datatype(number: int, tensor: str) -> DataType:
    datatype = BY_CONFIG_NUMBER.get(number)
    if datatype is None:
        raise ValueError(f"tensor '{tensor}' has no data_type")
    return datatype


def _input(item: pb.ModelInput) -> TensorSpec:
    return TensorSpec(
        item.name,
        _datatype(item.data_type, item.name),
        tuple(item.dims),
        tuple(item.reshape.shape) if item.HasField("reshape") else None,
        item.optional,
        item.allow_ragged_batch,
        is_shape_tensor=item.is_shape_tensor,
    )


def _output(item: pb.ModelOutput) -> TensorSpec:
    return TensorSpec(
        item.name,
        _datatype(item.data_type, item.name),
        tuple(item.dims),
        tuple(item.reshape.shape) if item.HasField("reshape") else None,
        label_filename=item.label_filename,
        is_shape_tensor=item.is_shape_tensor,
    )


def _queue_policy(item: pb.ModelQueuePolicy) -> QueuePolicy:
    return QueuePolicy(
        item.timeout_action == pb.ModelQueuePolicy.DELAY,
        item.default_timeout_microseconds,
        item.allow_timeout_override,
        item.max_queue_size,
    )


def _dynamic(item: pb.ModelDynamicBatching) -> DynamicBatching:
    return DynamicBatching(
        tuple(sorted(item.preferred_batch_size)),
        item.max_queue_delay_microseconds,
        item.preserve_ordering,
        item.priority_levels,
        item.default_priority_level,
        _queue_policy(item.default_queue_policy),
        {key: _queue_policy(policy) for key, policy in item.priority_queue_policy.items()},
    )


def _group(item: pb.ModelInstanceGroup) -> InstanceGroup:
    kind = InstanceKind(pb.ModelInstanceGroup.Kind.Name(item.kind))
    device_kind = pb.ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind
    return InstanceGroup(
        item.name,
        kind,
        item.count,
        tuple(item.gpus),
        item.passive,
        tuple(item.profile),
        item.host_policy,
        tuple(f"{device_kind.Name(d.kind)}:{d.device_id}" for d in item.secondary_devices),
        scheduling.rate_limit(item.rate_limiter),
    )


def _warmup(item: pb.ModelWarmup) -> WarmupSample:
    inputs = tuple(
        WarmupInput(
            name,
            _datatype(tensor.data_type, name),
            tuple(tensor.dims),
            tensor.zero_data,
            tensor.random_data,
            tensor.input_data_file,
        )
        for name, tensor in item.inputs.items()
    )
    return WarmupSample(item.name, item.batch_size, max(1, item.count), inputs)
