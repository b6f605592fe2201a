"""Between arrays of a program and the requests and responses of the core. Any thread.

Arrays are NumPy's, or anything that NumPy can look into (DLPack, lists). Source: spec CLI-173.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from serving.config.decode import ModelSpec
from serving.datatypes import BY_DTYPE, DataType
from serving.errors import InvalidArgumentError
from serving.protocol.parameters import apply_parameter
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.response import InferenceResponse, ParameterValue


class RequestOptions(TypedDict, total=False):
    """What a request may say besides its inputs; names as in the protocols."""

    outputs: Sequence[str]
    """Which ones to compute; all by default."""
    request_id: str
    parameters: Mapping[str, ParameterValue]
    sequence_id: int | str
    sequence_start: bool
    sequence_end: bool
    priority: int
    timeout: int
    """Microseconds in the queue."""


@dataclass(frozen=True, slots=True, eq=False)
class Response(Mapping[str, NDArray[np.generic]]):
    """One answer: a mapping of output names to arrays, which are the caller's own."""

    model_name: str
    model_version: int
    id: str
    outputs: Mapping[str, NDArray[np.generic]]
    """BYTES tensors are object arrays of bytes."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


class Draft:
    """A request in the caller's thread; the loop thread makes it complete by the model's config."""

    def __init__(
        self, name: str, version: int, inputs: Mapping[str, Any], options: RequestOptions
    ) -> None:
        """Raises InvalidArgumentError for what is no tensor, and TypeError for unknown options."""
        unknown = sorted(set(options) - set(RequestOptions.__annotations__))
        if unknown:
            raise TypeError(
                f"a request has no option {', '.join(unknown)}; known are "
                f"{', '.join(RequestOptions.__annotations__)}"
            )
        self.name = name
        self.version = version
        self._options = options
        self._untyped: set[str] = set()
        self._arrays: dict[str, NDArray[np.generic]] = {}
        for item, value in inputs.items():
            try:
                self._arrays[item] = self._array(item, value)
            except (ValueError, TypeError, OverflowError, UnicodeEncodeError) as error:
                raise InvalidArgumentError(
                    f"{self._where(item)} cannot be made an array: {error}"
                ) from None

    def _where(self, item: str) -> str:
        return f"input '{item}' of model '{self.name}'"

    def _array(self, item: str, value: Any) -> NDArray[np.generic]:
        """An array keeps its type; lists and numbers, which have none, get the model's later."""
        if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
            value = np.from_dlpack(value)
        has_type = isinstance(value, np.ndarray | np.generic)
        array = np.asarray(value, order="C")
        if array.dtype.kind in "SUO":
            # NumPy's own text types lose zero bytes at the end.
            return _texts(array if has_type else np.asarray(value, dtype=np.object_))
        if not has_type:
            self._untyped.add(item)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def request(self, spec: ModelSpec) -> InferenceRequest:
        """Loop thread. Raises InvalidArgumentError."""
        options = self._options
        request = InferenceRequest(self.name, self.version, id=options.get("request_id", ""))
        for item, array in self._arrays.items():
            declared = spec.inputs.get(item)
            if declared is not None and item in self._untyped:
                array = self._typed(item, array, declared.datatype)
            datatype = BY_DTYPE.get(array.dtype)
            if datatype is None:
                raise InvalidArgumentError(
                    f"{self._where(item)} is an array of {array.dtype}, which no tensor can be"
                )
            request.inputs[item] = InputTensor(item, datatype, array.shape, array)
        request.requested_outputs = list(map(RequestedOutput, options.get("outputs", ())))
        for name in ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout"):
            if name in options:
                apply_parameter(request, name, options[name])
        for name, value in options.get("parameters", {}).items():
            apply_parameter(request, name, value)
        return request

    def _typed(
        self, item: str, array: NDArray[np.generic], wanted: DataType
    ) -> NDArray[np.generic]:
        """Numbers as the type that the model wants, where it can hold them."""
        kinds = "bif" if wanted.name.startswith(("FP", "BF")) else "bi"
        is_kind = array.dtype.kind in ("b" if wanted.name == "BOOL" else kinds)
        if not wanted.is_bytes and (is_kind or array.size == 0):
            typed = array.astype(wanted.dtype)
            if array.dtype.kind == "f" or np.array_equal(typed, array):
                return typed
        raise InvalidArgumentError(
            f"{self._where(item)} holds values that datatype {wanted.name} cannot"
        )


def _texts(array: NDArray[np.generic]) -> NDArray[np.object_]:
    out = np.empty(array.shape, dtype=np.object_)
    flat = out.reshape(-1)
    for index, item in enumerate(array.ravel()):
        if not isinstance(item, str | bytes):
            raise TypeError(f"element {index} is a {type(item).__name__}, neither text nor bytes")
        flat[index] = item if isinstance(item, bytes) else str(item).encode()
    return out


def response_of(response: InferenceResponse) -> Response:
    """Loop thread. Copies: arrays of the core may be lent memory, cached, or the caller's input."""
    outputs = {item.name: item.array.copy() for item in response.outputs}
    return Response(
        response.model_name,
        response.model_version,
        response.id,
        outputs,
        dict(response.parameters),
    )
