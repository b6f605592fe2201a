"""The graph of an ensemble, compiled at load: which tensor feeds which step, and what a request for
some of the outputs has to run.

Pure: steps and tensors are numbers here, no model is known. Behaviour after spec SCH-080..082.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.config.decode import ModelSpec
from serving.request import RequestedOutput

_MOST_FLOWS = 256
"""Choices of outputs kept compiled; callers that ask for ever new ones compile anew."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    index: int
    model_name: str
    model_version: int
    """-1: the highest ready one."""
    namespace: str
    inputs: tuple[tuple[str, int], ...]
    """Input of the model and the tensor that feeds it."""
    outputs: dict[str, int]
    """Output of the model -> the tensor that it gives."""

    def __str__(self) -> str:
        return f"step {self.index} of model '{self.model_name}'"


@dataclass(frozen=True, slots=True)
class Flow:
    """What a request for certain outputs runs."""

    outputs: tuple[tuple[str, int], ...]
    """Outputs of the ensemble and their tensors, in the order of the answer."""
    steps: tuple[int, ...]
    first: tuple[int, ...]
    """Steps that wait for nothing."""
    consumers: tuple[tuple[int, ...], ...]
    """By tensor: the steps of this flow that read it."""
    needs: tuple[int, ...]
    """By step: how many tensors it waits for."""
    is_output: tuple[int, ...]
    """By tensor: how many wanted outputs it is."""
    wanted: tuple[list[RequestedOutput], ...]
    """By step: the outputs to ask the model for; shared by all requests, never changed."""


class EnsemblePlan:
    def __init__(self, spec: ModelSpec) -> None:
        self.name = spec.name
        numbers: dict[str, int] = {}

        def number(tensor: str) -> int:
            return numbers.setdefault(tensor, len(numbers))

        self.inputs = {name: number(name) for name in spec.inputs}
        self.steps = tuple(
            PlanStep(
                index,
                step.model_name,
                step.model_version,
                step.namespace,
                # A map of a config comes in any order.
                tuple((name, number(tensor)) for name, tensor in sorted(step.input_map.items())),
                {name: number(tensor) for name, tensor in sorted(step.output_map.items())},
            )
            for index, step in enumerate(spec.ensemble.steps)
        )
        self.outputs = {name: number(name) for name in spec.outputs}
        self.tensors = tuple(numbers)
        """Names by number."""
        self.writers = self._writers()
        self._flows: dict[tuple[str, ...], Flow] = {}
        self._everything = self._compile(tuple(self.outputs), self.steps)

    def __repr__(self) -> str:
        return f"<EnsemblePlan {self.name} steps={len(self.steps)} tensors={len(self.tensors)}>"

    def flow(self, names: Sequence[str]) -> Flow:
        """For these outputs; none stands for all of them, and then every step runs."""
        if not names:
            return self._everything
        key = tuple(names)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= _MOST_FLOWS:
                self._flows.clear()
            flow = self._flows[key] = self._compile(key, self._needed(key))
        return flow

    def source_of(self, tensor: int) -> str:
        """For people: where the tensor comes from."""
        step = self.writers[tensor]
        return "the request" if step is None else str(step)

    def _writers(self) -> list[PlanStep | None]:
        """By tensor; None is the request."""
        writers: list[PlanStep | None] = [None] * len(self.tensors)
        for step in self.steps:
            for tensor in step.outputs.values():
                writers[tensor] = step
        return writers

    def _needed(self, names: Iterable[str]) -> list[PlanStep]:
        """The steps without which one of these outputs could not be."""
        needed: set[int] = set()
        waiting = [self.outputs[name] for name in names]
        while waiting:
            step = self.writers[waiting.pop()]
            if step is not None and step.index not in needed:
                needed.add(step.index)
                waiting += [tensor for _, tensor in step.inputs]
        return [step for step in self.steps if step.index in needed]

    def _compile(self, names: tuple[str, ...], steps: Sequence[PlanStep]) -> Flow:
        consumers: list[list[int]] = [[] for _ in self.tensors]
        needs = [0] * len(self.steps)
        for step in steps:
            read = {tensor for _, tensor in step.inputs}
            needs[step.index] = len(read)
            for tensor in read:
                consumers[tensor].append(step.index)
        is_output = [0] * len(self.tensors)
        for name in names:
            is_output[self.outputs[name]] += 1
        wanted: list[list[RequestedOutput]] = [[] for _ in self.steps]
        for step in steps:
            wanted[step.index] = [
                RequestedOutput(name)
                for name, tensor in step.outputs.items()
                if consumers[tensor] or is_output[tensor]
            ]
        return Flow(
            # Triton gives the output that is declared last first; some clients count on places.
            tuple((name, self.outputs[name]) for name in reversed(self.outputs) if name in names),
            tuple(step.index for step in steps),
            tuple(step.index for step in steps if not needs[step.index]),
            tuple(map(tuple, consumers)),
            tuple(needs),
            tuple(is_output),
            tuple(wanted),
        )
