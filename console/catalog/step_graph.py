"""The steps of an ensemble as its config tells them: who runs after whom, and over which tensors.

Pure; a config under repair (unknown tensors, circles) still gives a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from console.catalog.signature import datatype_word, shape_text
from serving.config.protobuf import pb

LATEST = -1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the ensemble, as one step takes or gives it."""

    name: str
    """Within the ensemble."""
    model_name: str
    """As the step's model calls it."""
    signature: str = ""
    """`FP32 [1, 3]` by the config of the step's model; empty where that does not say."""


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    """From 1, in the order of the config."""
    model: str
    version: str
    """Empty: the highest that is ready."""
    takes: list[Tensor]
    gives: list[Tensor]


@dataclass(slots=True)
class StepGraph:
    inputs: list[str]
    outputs: list[str]
    steps: list[Step]
    depths: dict[int, int] = field(default_factory=dict)
    """Step number -> 1 for a step that takes only inputs, else 1 more than the deepest before."""

    def giver_of(self, tensor: str) -> Step | None:
        return next(
            (step for step in self.steps if any(given.name == tensor for given in step.gives)), None
        )


def graph_of(
    config: pb.ModelConfig, part_config: Callable[[str], pb.ModelConfig | None]
) -> StepGraph:
    """`part_config` gives the config of a step's model where it is known."""
    steps = [
        _step(number, item, part_config(item.model_name))
        for number, item in enumerate(config.ensemble_scheduling.step, 1)
    ]
    graph = StepGraph([item.name for item in config.input], [o.name for o in config.output], steps)
    graph.depths = _depths(graph)
    return graph


def _step(number: int, item: pb.ModelEnsembling.Step, part: pb.ModelConfig | None) -> Step:
    # The maps lead from the model's tensor to the ensemble's, both for inputs and outputs.
    inputs = _signatures(part.input, part.max_batch_size) if part is not None else {}
    outputs = _signatures(part.output, part.max_batch_size) if part is not None else {}
    return Step(
        number=number,
        model=item.model_name,
        version="" if item.model_version == LATEST else str(item.model_version),
        takes=_tensors(item.input_map, inputs),
        gives=_tensors(item.output_map, outputs),
    )


def _tensors(names: Mapping[str, str], signatures: Mapping[str, str]) -> list[Tensor]:
    return [Tensor(names[name], name, signatures.get(name, "")) for name in sorted(names)]


def _signatures(
    tensors: Iterable[pb.ModelInput | pb.ModelOutput], max_batch_size: int
) -> dict[str, str]:
    batch = [-1] if max_batch_size > 0 else []
    return {
        item.name: f"{datatype_word(item.data_type)} {shape_text([*batch, *item.dims])}"
        for item in tensors
    }


def _depths(graph: StepGraph) -> dict[int, int]:
    """Rounds of a relaxation; as many as there are steps end every circle."""
    depths = dict.fromkeys((step.number for step in graph.steps), 1)
    givers = {tensor.name: step.number for step in graph.steps for tensor in step.gives}
    for _ in graph.steps:
        before = dict(depths)
        for step in graph.steps:
            known = [depths[givers[item.name]] for item in step.takes if item.name in givers]
            depths[step.number] = min(1 + max(known, default=0), len(graph.steps))
        if depths == before:
            break
    return depths
