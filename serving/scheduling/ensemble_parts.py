"""Which models answer the steps of one ensemble request, and how tensors fit from one to the next.

A `Binding` is chosen when a request starts and holds to its end: all of its steps see the same
version of every part, and those of inner ensembles too, even if parts are replaced meanwhile.
Loop thread only. Source: spec SCH-080, SCH-083; behaviour after EnsembleContext of Triton's core.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from serving.config.decode import ModelSpec
from serving.errors import ServingError, UnavailableError
from serving.leases import Leases
from serving.request import InferenceRequest
from serving.scheduling.ensemble_plan import EnsemblePlan, PlanStep
from serving.services import ModelCalls, ServedModel

Shape = tuple[int, ...]
_serials = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    models: tuple[ServedModel, ...]
    """By step."""
    inner: tuple[Binding | None, ...]
    """By step: that of the part, where it is an ensemble itself."""
    leases: tuple[Leases, ...]
    """Of every model, those of inner ensembles included."""
    decoupled: tuple[bool, ...]
    """By step."""
    fits: Fits | None
    """None where all models agree on whether tensors have a batch axis."""
    serial: int = field(default_factory=_serials.__next__)
    """No other binding has it: it tells answers apart that were given by other models."""

    def take(self) -> None:
        for lease in self.leases:
            lease.take()

    def give_back(self) -> None:
        for lease in self.leases:
            lease.give_back()

    def is_of(self, models: Sequence[ServedModel], inner: Sequence[Binding | None]) -> bool:
        return all(a is b for a, b in zip(self.models, models, strict=True)) and all(
            a is b for a, b in zip(self.inner, inner, strict=True)
        )


class Parts:
    """The models behind the steps of one ensemble."""

    def __init__(self, spec: ModelSpec, plan: EnsemblePlan, calls: ModelCalls) -> None:
        self._spec = spec
        self._plan = plan
        self._calls = calls
        self._last: Binding | None = None

    def bind(self, request: InferenceRequest) -> Binding:
        """What serves now, and goes on with the sequence of the request.

        Raises: UnavailableError naming the step whose model does not serve.
        """
        steps = self._plan.steps
        if request.correlation_id and not request.sequence_start:
            models = [self._holder(step, request.correlation_id) for step in steps]
        else:
            models = [self._model(step) for step in steps]
        inner = [
            None if model.ensemble is None else model.ensemble.bind(request) for model in models
        ]
        last = self._last
        if last is None or not last.is_of(models, inner):
            last = self._last = self._binding(models, inner)
        return last

    @property
    def unready_reason(self) -> str:
        """Empty while every part can execute."""
        for step in self._plan.steps:
            try:
                reason = self._model(step).unready_reason
            except ServingError as error:
                return error.message
            if reason:
                return f"model '{step.model_name}' of step {step.index} is not ready: {reason}"
        return ""

    def serving(self) -> list[ServedModel]:
        """The parts that serve now, each once."""
        found: dict[int, ServedModel] = {}
        for step in self._plan.steps:
            with contextlib.suppress(ServingError):
                model = self._model(step)
                found[id(model)] = model
        return list(found.values())

    def labels_of(self, output: str) -> list[str]:
        """Those of the part that makes the output; empty where it has none, or is away."""
        tensor = self._plan.outputs.get(output)
        step = None if tensor is None else self._plan.writers[tensor]
        if step is None:
            return []
        name = next(name for name, given in step.outputs.items() if given == tensor)
        try:
            return self._model(step).labels_of(name)
        except ServingError:
            return []

    def _holder(self, step: PlanStep, correlation_id: int | str) -> ServedModel:
        version = step.model_version
        holder = self._calls.sequence_holder(step.model_name, version, correlation_id)
        return self._model(step) if holder is None else holder

    def _model(self, step: PlanStep) -> ServedModel:
        try:
            return self._calls.model(step.model_name, step.model_version, step.namespace)
        except ServingError as error:
            raise UnavailableError(
                f"in ensemble '{self._plan.name}', {step} cannot run: {error.message}"
            ) from error

    def _binding(self, models: Sequence[ServedModel], inner: Sequence[Binding | None]) -> Binding:
        leases = {id(model.leases): model.leases for model in models}
        for item in inner:
            if item is not None:
                leases |= {id(lease): lease for lease in item.leases}
        return Binding(
            tuple(models),
            tuple(inner),
            tuple(leases.values()),
            tuple(model.spec.is_decoupled for model in models),
            Fits.of(self._spec, self._plan, models),
        )


class Fits:
    """Gives tensors a batch axis of one, or takes it away, between models that batch and models
    that do not.
    """

    def __init__(self, spec: ModelSpec, plan: EnsemblePlan, models: Sequence[ServedModel]) -> None:
        self._models = models
        self._spec = spec
        writers = [None if step is None else step.index for step in plan.writers]
        self._is_batched = [
            (spec if index is None else models[index].spec).has_batch_axis for index in writers
        ]
        """By tensor: does it come with a batch axis?"""

    @classmethod
    def of(cls, spec: ModelSpec, plan: EnsemblePlan, models: Sequence[ServedModel]) -> Fits | None:
        if all(model.spec.has_batch_axis == spec.has_batch_axis for model in models):
            return None
        return cls(spec, plan, models)

    def to_input(self, step: int, name: str, tensor: int, shape: Shape) -> Shape:
        """The shape that the model of the step takes this tensor in."""
        spec = self._models[step].spec
        declared = spec.inputs.get(name)
        if declared is None:
            return shape
        return _fitted(shape, declared.dims, self._is_batched[tensor], spec.has_batch_axis)

    def to_output(self, name: str, tensor: int, shape: Shape) -> Shape:
        dims = self._spec.outputs[name].dims
        return _fitted(shape, dims, self._is_batched[tensor], self._spec.has_batch_axis)


def _fitted(shape: Shape, dims: Shape, has_batch: bool, wants_batch: bool) -> Shape:
    if has_batch == wants_batch:
        return shape
    if wants_batch:
        return (1, *shape) if _matches(dims, shape) else shape
    if shape and shape[0] == 1 and _matches(dims, shape[1:]):
        return shape[1:]
    return shape


def _matches(dims: Shape, shape: Shape) -> bool:
    return len(dims) == len(shape) and all(
        want in (-1, have) for want, have in zip(dims, shape, strict=True)
    )
