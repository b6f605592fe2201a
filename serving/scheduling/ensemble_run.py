"""One request on its way through the graph of an ensemble: which step starts when, with what.

A `_Wave` holds the tensors that belong together: those of the request, or those that stem from one
response of a decoupled step. A step starts as soon as a wave has all of its tensors; arrays are
handed over as they are. Callbacks only, loop thread only. Source: spec SCH-081..090.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.errors import (
    CancelledError,
    FailureReason,
    InternalError,
    ServingError,
    error_from_code,
)
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.ensemble_parts import Binding
from serving.scheduling.ensemble_plan import Flow, PlanStep
from serving.services import ServedModel

if TYPE_CHECKING:
    from serving.scheduling.ensemble import EnsembleScheduler

_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


class _Absent:
    """Stands for a tensor that nobody will give: an optional input, an output left out."""

    __slots__ = ()


ABSENT = _Absent()
Value = InputTensor | OutputTensor | _Absent | None
Sequence = tuple[int | str, bool, bool]


class _Wave:
    __slots__ = ("is_computed", "left", "missing", "sequence", "values")

    def __init__(self, flow: Flow, sequence: Sequence) -> None:
        self.values: list[Value] = [None] * len(flow.consumers)
        self.missing = list(flow.needs)
        """By step: tensors that it still waits for."""
        self.left = len(flow.outputs)
        """Outputs of the ensemble that are not there yet."""
        self.is_computed = False
        """A step has given one of them."""
        self.sequence = sequence


class StepCall:
    """One step of one wave, executing or waiting for its turn."""

    __slots__ = ("request", "run", "step", "wave")

    def __init__(self, run: EnsembleRun, wave: _Wave, step: int) -> None:
        self.run = run
        self.wave = wave
        self.step = step
        self.request: InferenceRequest | None = None
        """None while it waits."""

    def on_response(self, response: InferenceResponse) -> None:
        self.run.on_answer(self, response)


class EnsembleRun:
    """Made by the scheduler, which is told by `ended` when nothing of it runs any more."""

    __slots__ = (
        "_calls",
        "_error",
        "_flow",
        "_has_ended",
        "_is_decoupled",
        "_response",
        "_running",
        "_scheduler",
        "_sums",
        "binding",
        "request",
    )

    def __init__(
        self,
        scheduler: EnsembleScheduler,
        request: InferenceRequest,
        flow: Flow,
        binding: Binding,
    ) -> None:
        self.request = request
        self.binding = binding
        self._scheduler = scheduler
        self._flow = flow
        self._is_decoupled = scheduler.spec.is_decoupled
        self._calls: set[StepCall] = set()
        self._running = 0
        """Steps without final answer, and one more while steps are being started."""
        self._error: ServingError | None = None
        self._response: InferenceResponse | None = None
        self._has_ended = False
        """The final response has been given."""
        self._sums = [0, 0, 0, 0]
        """Nanoseconds of all steps: queue, input, infer, output."""

    def begin(self) -> None:
        request, flow = self.request, self._flow
        sequence = (request.correlation_id, request.sequence_start, request.sequence_end)
        wave = _Wave(flow, sequence)
        ready = list(flow.first)
        inputs = request.inputs
        for name, tensor in self._scheduler.plan.inputs.items():
            self._put(wave, tensor, inputs.get(name, ABSENT), ready)
        self._running += 1
        self._go_on(wave, ready)

    def cancel(self, error: ServingError | None = None) -> None:
        """Start nothing more, and cancel what runs."""
        if self._error is None:
            name = self._scheduler.spec.name
            self._error = error or CancelledError(f"the request to ensemble '{name}' was cancelled")
        self._running += 1
        self._drop_waiting()
        for call in list(self._calls):
            if call.request is not None:  # otherwise answered while another was cancelled
                call.request.cancel()
        self._release()

    def _drop_waiting(self) -> None:
        """Steps whose turn has not come never run."""
        for call in [call for call in self._calls if call.request is None]:
            self._scheduler.drop(call)
            self._calls.discard(call)
            self._running -= 1

    def awaits(self) -> list[tuple[ServedModel, InferenceRequest | None]]:
        """The models of steps that run, with their requests; of those to come, with None."""
        models = self.binding.models
        found = [(models[call.step], call.request) for call in self._calls]
        if not any(self.binding.decoupled):  # otherwise nobody knows what is to come
            to_come = {
                step for call in self._calls for step in self._flow.steps if call.wave.missing[step]
            }
            found += [(models[step], None) for step in to_come]
        return found

    # Tensors

    def _put(self, wave: _Wave, tensor: int, value: Value, ready: list[int]) -> None:
        flow = self._flow
        wave.values[tensor] = value
        wave.left -= flow.is_output[tensor]
        missing = wave.missing
        for step in flow.consumers[tensor]:
            missing[step] -= 1
            if not missing[step]:
                ready.append(step)

    def _take(self, call: StepCall, response: InferenceResponse) -> None:
        wave = call.wave
        if self.binding.decoupled[call.step]:
            wave = _Wave(self._flow, wave.sequence)
        if response.parameters:
            wave.sequence = _sequence_of(response, wave.sequence)
        given = {item.name: item for item in response.outputs}
        ready: list[int] = []
        for name, tensor in self._scheduler.plan.steps[call.step].outputs.items():
            value = given.get(name, ABSENT)
            self._put(wave, tensor, value, ready)
            if value is not ABSENT and self._flow.is_output[tensor]:
                wave.is_computed = True
        self._go_on(wave, ready)

    def _go_on(self, wave: _Wave, ready: list[int]) -> None:
        """The caller counts as running until the end of this."""
        if not wave.left and self._error is None:
            wave.left = -1
            self._emit(wave, is_last=self._running == 1 and not ready)
        for step in ready:
            if self._error is not None:
                break
            self._running += 1
            call = StepCall(self, wave, step)
            self._calls.add(call)
            self._scheduler.submit(call)
        self._release()

    # Steps

    def start(self, call: StepCall) -> None:
        """Ask the model. The scheduler calls this as soon as the step may run."""
        step = self._scheduler.plan.steps[call.step]
        model = self.binding.models[call.step]
        wave, origin = call.wave, self.request
        sequence = wave.sequence
        request = call.request = InferenceRequest(
            step.model_name,
            model.version,
            origin.id,
            self._inputs(step, wave),
            self._flow.wanted[call.step],
            origin.parameters,
            correlation_id=sequence[0],
            sequence_start=sequence[1],
            sequence_end=sequence[2],
            priority=origin.priority,
            timeout_us=origin.timeout_us,
            on_response=call.on_response,
        )
        request.pinned = self.binding.inner[call.step]
        if origin.trace is not None:
            request.trace = origin.trace.child(step.model_name, is_step=True)
        model.infer(request)

    def _inputs(self, step: PlanStep, wave: _Wave) -> dict[str, InputTensor]:
        inputs = {}
        fits = self.binding.fits
        for name, tensor in step.inputs:
            value = wave.values[tensor]
            if isinstance(value, (InputTensor, OutputTensor)):
                shape, array = value.shape, value.array
                if fits is not None:
                    shape = fits.to_input(step.index, name, tensor, shape)
                    array = array.reshape(shape)
                inputs[name] = InputTensor(name, value.datatype, shape, array)
        return inputs

    def on_answer(self, call: StepCall, response: InferenceResponse) -> None:
        if response.error is not None and self._error is None:
            self._error = self._step_error(call, response.error)
            self._drop_waiting()
        if response.is_final:
            self._calls.discard(call)
            self._scheduler.finished(call)
            self._add_times(call)
            # They point at each other: let go, or tensors wait for the cycle collector.
            call.request = None
        else:
            self._running += 1
        if response.is_null or self._error is not None:
            self._release()
        else:
            self._take(call, response)

    def _add_times(self, call: StepCall) -> None:
        assert call.request is not None
        times = call.request.times
        start_ns = times.compute_start_ns
        if not start_ns:
            return  # it was refused or answered without an execution
        end_ns = times.compute_end_ns or self._scheduler.clock.now_ns()
        input_end_ns = times.compute_input_end_ns or start_ns
        output_start_ns = times.compute_output_start_ns or end_ns
        sums = self._sums
        sums[0] += start_ns - times.queue_start_ns
        sums[1] += input_end_ns - start_ns
        sums[2] += output_start_ns - input_end_ns
        sums[3] += end_ns - output_start_ns

    def _step_error(self, call: StepCall, error: ServingError) -> ServingError:
        plan = self._scheduler.plan
        step = plan.steps[call.step]
        told = f"in ensemble '{plan.name}', {step}: {error.message}"
        for name, tensor in step.inputs:
            if call.wave.values[tensor] is ABSENT:
                told += (
                    f" (its input '{name}' is tensor '{plan.tensors[tensor]}', which "
                    f"{plan.source_of(tensor)} did not give)"
                )
        reason = FailureReason.CANCELED if self.request.is_cancelled else FailureReason.OTHER
        return error_from_code(error.code, told, reason)

    # Answers

    def _emit(self, wave: _Wave, *, is_last: bool) -> None:
        outputs = []
        fits = self.binding.fits
        for name, tensor in self._flow.outputs:
            value = wave.values[tensor]
            if isinstance(value, (InputTensor, OutputTensor)):
                shape, array = value.shape, value.array
                if fits is not None:
                    shape = fits.to_output(name, tensor, shape)
                    array = array.reshape(shape)
                outputs.append(OutputTensor(name, value.datatype, shape, array))
        response = self._new_response(outputs)
        if wave.is_computed:
            response.parameters = dict(zip(_SEQUENCE, wave.sequence, strict=True))
        if not self._is_decoupled or is_last:
            self._response = self._response or response
        else:
            response.is_final = False
            self._deliver(response)

    def _release(self) -> None:
        self._running -= 1
        if not self._running and not self._has_ended:
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._scheduler.ended(self)
        response = self._response
        if self._error is not None:
            response = self.request.error_response(self._error)
        elif response is None and self._is_decoupled:
            response = self._new_response([])
            response.is_null = True
        elif response is None:
            response = self.request.error_response(self._dead_end())
        if response.error is None:
            self._scheduler.record(self.request, self._sums)
        self._deliver(response)

    def _new_response(self, outputs: list[OutputTensor]) -> InferenceResponse:
        request = self.request
        return InferenceResponse(request.model_name, request.model_version, request.id, outputs)

    def _deliver(self, response: InferenceResponse) -> None:
        deliver = self.request.deliver
        if deliver is not None:  # it was abandoned otherwise
            deliver(self.request, response)

    def _dead_end(self) -> InternalError:
        plan = self._scheduler.plan
        names = ", ".join(f"'{name}'" for name, _ in self._flow.outputs)
        steps = ", ".join(str(plan.steps[index]) for index in self._flow.steps)
        return InternalError(
            f"in ensemble '{plan.name}', unexpected deadlock: no more step can run, and not every "
            f"output is there of {names}, which {steps} would have to give"
        )


def _sequence_of(response: InferenceResponse, known: Sequence) -> Sequence:
    """A model may say in its answer which sequence it belongs to from then on."""
    parameters = response.parameters
    number = parameters.get(_SEQUENCE[0], known[0])
    return (
        number if isinstance(number, (int, str)) else known[0],
        bool(parameters.get(_SEQUENCE[1], known[1])),
        bool(parameters.get(_SEQUENCE[2], known[2])),
    )
