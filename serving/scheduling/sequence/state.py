"""Implicit state: what one request of a sequence leaves behind for the next one.

`ImplicitState` belongs to a model and knows its `state` entries; `SequenceMemory` belongs to one
sequence and holds the present tensors. The sequence batcher calls `feed` before it dispatches a
request and `keep` with every response. Pure; loop thread. Spec SCH-062..065.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.config.decode import ModelSpec
from serving.config.scheduling import SequenceState
from serving.errors import BackendError
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor


class ImplicitState:
    """The states of one model, and what they are at the start of a sequence."""

    def __init__(self, spec: ModelSpec, initial: Sequence[InputTensor]) -> None:
        """`initial`: as `read_initial_states` gives it, one for each state of the spec."""
        self._model_name = spec.name
        self._leading = 1 if spec.has_batch_axis else 0
        self._by_output = {state.output_name: state for state in spec.states}
        self._initial = {tensor.name: tensor for tensor in initial}

    def __repr__(self) -> str:
        return f"<ImplicitState {self._model_name} {list(self._initial)}>"

    def __bool__(self) -> bool:
        return bool(self._by_output)

    def start(self) -> SequenceMemory:
        """The memory of a sequence that begins."""
        return SequenceMemory(self, dict(self._initial))

    def taken_from(self, output: OutputTensor) -> InputTensor | None:
        """The state input that `output` becomes; None when it is no state output.

        Raises: BackendError when type or shape are not what the config promises.
        """
        state = self._by_output.get(output.name)
        if state is None:
            return None
        self._check(state, output)
        array = output.array
        if array.base is not None or not array.flags.owndata:
            # A view would keep the whole batch, or a child's shared memory, for as long as the
            # sequence lives.
            array = array.copy()
        return InputTensor(state.input_name, state.datatype, output.shape, array)

    def _check(self, state: SequenceState, output: OutputTensor) -> None:
        shape = output.shape[self._leading :]
        rows = output.shape[: self._leading]
        fits = len(shape) == len(state.dims) and all(
            want in (-1, have) for have, want in zip(shape, state.dims, strict=True)
        )
        if output.datatype is state.datatype and fits and rows in ((), (1,)):
            return
        wanted = [1] * self._leading + list(state.dims)
        raise BackendError(
            f"model '{self._model_name}' gave its state '{output.name}' as {output.datatype.name} "
            f"{list(output.shape)}, but the state in its config is {state.datatype.name} {wanted}; "
            "the sequence keeps the state that it had"
        )


class SequenceMemory:
    """The states of one sequence between two of its requests."""

    __slots__ = ("_states", "_tensors")

    def __init__(self, states: ImplicitState, tensors: dict[str, InputTensor]) -> None:
        self._states = states
        self._tensors = tensors

    def __repr__(self) -> str:
        shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        return f"<SequenceMemory {shapes}>"

    @property
    def nbytes(self) -> int:
        return sum(tensor.array.nbytes for tensor in self._tensors.values())

    def feed(self, request: InferenceRequest) -> None:
        """Put the present state among the inputs of `request`."""
        for item in self._tensors.values():
            # A tensor of its own: a backend may put another array into it.
            request.inputs[item.name] = InputTensor(
                item.name, item.datatype, item.shape, item.array
            )

    def keep(self, request: InferenceRequest, response: InferenceResponse) -> InferenceResponse:
        """Take the new state out of what the model answered; a response with an error changes
        nothing, and neither does a state that is not among the outputs.

        Returns: the response to deliver, or an error in its place when the state is not what the
        config promises. State outputs that are no outputs of the model are left in it: whoever
        delivers keeps the declared ones only.
        """
        if response.error is not None:
            return response
        try:
            taken = [self._states.taken_from(output) for output in response.outputs]
        except BackendError as error:
            refused = request.error_response(error)
            refused.is_final = response.is_final
            return refused
        self._tensors.update({tensor.name: tensor for tensor in taken if tensor is not None})
        return response
