"""Model specs for protocol tests."""

from __future__ import annotations

from serving.config.decode import DynamicBatching, ModelSpec, SchedulerKind, TensorSpec
from serving.datatypes import BY_NAME


def tensor(name: str, datatype: str, dims: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(name, BY_NAME[datatype], dims)


def identity_spec(
    datatype: str = "FP32",
    dims: tuple[int, ...] = (-1,),
    *,
    name: str = "m",
    max_batch_size: int = 0,
    is_decoupled: bool = False,
    inputs: tuple[str, ...] = ("INPUT0",),
) -> ModelSpec:
    outputs = tuple(item.replace("INPUT", "OUTPUT") for item in inputs)
    return ModelSpec(
        name=name,
        backend="identity",
        platform="",
        max_batch_size=max_batch_size,
        inputs={item: tensor(item, datatype, dims) for item in inputs},
        outputs={item: tensor(item, datatype, dims) for item in outputs},
        scheduler=SchedulerKind.DEFAULT,
        dynamic_batching=DynamicBatching(),
        instance_groups=(),
        parameters={},
        metric_tags={},
        warmup=(),
        is_decoupled=is_decoupled,
        default_model_filename="",
        response_cache=False,
    )
