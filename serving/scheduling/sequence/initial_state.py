"""What the first request of a sequence gets as its state: zeros, or the content of a file.

Reads files below `initial_state/` of the model directory; a load thread enters. Spec SCH-063.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.backends.base import ModelContext
from serving.config.scheduling import InitialState, SequenceState
from serving.errors import InvalidArgumentError, ServingError
from serving.request import InputTensor
from serving.tensor_files import TensorFile

_DIRECTORY = "initial_state"


def read_initial_states(context: ModelContext) -> tuple[InputTensor, ...]:
    """One read-only tensor for each state, in the order of the config, with its batch axis of 1.

    Raises: InvalidArgumentError naming state, file and cause.
    """
    tensors = []
    for state in context.spec.states:
        try:
            array = _data(state, context.model_directory)
        except (ServingError, OSError) as error:
            raise InvalidArgumentError(f"initial state of '{state.input_name}': {error}") from error
        if context.spec.has_batch_axis:
            array = array[np.newaxis]
        array.flags.writeable = False
        tensors.append(InputTensor(state.input_name, state.datatype, array.shape, array))
    return tuple(tensors)


def _data(state: SequenceState, model_directory: Path) -> NDArray[np.generic]:
    initial = state.initial
    if initial is not None and initial.data_file:
        return _file_data(state, initial, model_directory / _DIRECTORY)
    # Without an initial state Triton hands out memory as it is; zeros are one of its contents.
    dims = state.dims if initial is None else initial.dims
    shape = tuple(1 if dim < 0 else dim for dim in dims)
    if state.datatype.is_bytes:
        return np.full(shape, b"", dtype=np.object_)
    return np.zeros(shape, state.datatype.dtype)


def _file_data(state: SequenceState, initial: InitialState, directory: Path) -> NDArray[np.generic]:
    file = TensorFile(directory, "data_file", initial.data_file)
    return file.read(state.input_name, state.datatype, initial.dims)
