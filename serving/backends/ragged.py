"""Ragged batches: inputs of different shapes laid end to end, tensors that tell where each begins,
and outputs cut back into answers.

Pure functions over the requests of one batch, for `TensorInstance`; entered by an instance's thread
or child process. Behaviour after backend/src/backend_input_collector.cc and
backend_output_responder.cc. Source: spec CFG-036, CFG-050..057.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from serving.config.decode import ModelSpec
from serving.config.scheduling import BatchInput
from serving.errors import BackendError
from serving.request import InferenceRequest

Array = NDArray[np.generic]
Shape = tuple[int, ...]


class RaggedInputs:
    """The tensors of a batch that come from the shapes of its requests."""

    def __init__(self, spec: ModelSpec) -> None:
        self.names = frozenset(
            item.name for item in spec.inputs.values() if item.allow_ragged_batch
        )
        """Inputs that the model gets as one row of elements, [total element count]."""
        self._batch_inputs = spec.batch_inputs
        self._ranks = {item.name: len(item.dims) for item in spec.inputs.values()}

    def joined(self, arrays: Sequence[Array]) -> Array:
        """A ragged input of all requests, flat; also of a request that is alone."""
        if len(arrays) == 1:
            return arrays[0].reshape(-1)
        return np.concatenate([array.reshape(-1) for array in arrays])

    def generated(self, requests: Sequence[InferenceRequest]) -> dict[str, Array]:
        """What batch_input asks for, by the name of the model's input."""
        made: dict[str, Array] = {}
        for item in self._batch_inputs:
            array = self._generate(item, requests)
            for name in item.names:
                made[name] = array
        return made

    def _generate(self, item: BatchInput, requests: Sequence[InferenceRequest]) -> Array:
        source = item.sources[0]
        shapes = [self._shape(request, source) for request in requests]
        values = _KINDS[item.kind](shapes)
        return values.astype(item.datatype.dtype)

    def _shape(self, request: InferenceRequest, source: str) -> Shape:
        tensor = request.inputs.get(source)
        if tensor is None:  # an optional input that the request leaves out has no elements
            return (request.batch_size,) + (0,) * self._ranks[source]
        return tensor.shape


def _element_count(shapes: Sequence[Shape]) -> Array:
    return np.array([prod(shape) for shape in shapes], np.int64)


def _accumulated(shapes: Sequence[Shape]) -> Array:
    return np.cumsum(_element_count(shapes))


def _accumulated_with_zero(shapes: Sequence[Shape]) -> Array:
    return np.concatenate([np.zeros(1, np.int64), _accumulated(shapes)])


def _max_as_shape(shapes: Sequence[Shape]) -> Array:
    # Only the length says something; the first request has it all, the others have nothing.
    return np.zeros(max(map(prod, shapes)), np.int64)


def _item_shape(shapes: Sequence[Shape]) -> Array:
    # One row for each item of the batch, without the batch axis.
    rows = [shape[1:] for shape in shapes for _ in range(shape[0])]
    return np.array(rows, np.int64).reshape(len(rows), len(shapes[0]) - 1)


def _item_shape_flatten(shapes: Sequence[Shape]) -> Array:
    return _item_shape(shapes).reshape(-1)


_KINDS: Mapping[str, Callable[[Sequence[Shape]], Array]] = {
    "BATCH_ELEMENT_COUNT": _element_count,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": _accumulated,
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": _accumulated_with_zero,
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": _max_as_shape,
    "BATCH_ITEM_SHAPE": _item_shape,
    "BATCH_ITEM_SHAPE_FLATTEN": _item_shape_flatten,
}


class ScatteredOutputs:
    """Outputs of batch_output: BATCH_SCATTER_WITH_INPUT_SHAPE, the only kind there is."""

    def __init__(self, spec: ModelSpec) -> None:
        self._model = spec.name
        self._dims: dict[str, Shape] = {}
        self._sources: dict[str, str] = {}
        for item in spec.batch_outputs:
            for name in item.names:
                output = spec.outputs[name]
                dims = output.dims if output.reshape is None else output.reshape
                self._dims[name] = (-1, *dims) if spec.has_batch_axis else dims
                self._sources[name] = item.sources[0]

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def cut(self, name: str, array: Array, requests: Sequence[InferenceRequest]) -> list[Array]:
        """The part of each request: as many elements as its shape has, in order.

        Raises: BackendError where the model's output does not come to the sum of the parts.
        """
        shapes = [self._shape(name, request) for request in requests]
        total = sum(map(prod, shapes))
        if total != array.size:
            raise BackendError(
                f"model '{self._model}' returned {array.size} elements in output '{name}', but "
                f"the shapes of input '{self._sources[name]}' in the batch make {total}: "
                "batch_output scatters an output that has as many elements as its source input"
            )
        flat = array.reshape(-1)
        parts, start = [], 0
        for shape in shapes:
            end = start + prod(shape)
            parts.append(flat[start:end].reshape(shape))
            start = end
        return parts

    def _shape(self, name: str, request: InferenceRequest) -> Shape:
        """Dimensions that are any are those of the source input at the same places."""
        source = request.inputs.get(self._sources[name])
        given = (0,) if source is None else source.shape
        dims = self._dims[name]
        if source is not None and len(given) < len(dims):
            raise BackendError(
                f"output '{name}' of model '{self._model}' has {len(dims)} dimensions and its "
                f"source input '{source.name}' has {len(given)}: batch_output takes the "
                "dimensions of the output from the input at the same places"
            )
        return tuple(
            dim if dim >= 0 else given[place] if place < len(given) else 0
            for place, dim in enumerate(dims)
        )
