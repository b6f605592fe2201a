"""Tensors as JSON text: numbers, booleans and strings, nested or flat, both ways.

The fast path decodes with a typed msgspec decoder for the nesting that the text opens with; mixed
nesting and wrong elements take a slower walk that names the problem. Pure; any thread.
Source: spec HTTP-032, HTTP-033, HTTP-036.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from types import GenericAlias
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from serving.datatypes import DataType
from serving.errors import InvalidArgumentError
from serving.protocol.big_json import BigArray
from serving.protocol.v2_json import malformed
from serving.response import OutputTensor

MAX_DEPTH = 100
_TYPED_DEPTH = 5

_FLOATS = {"FP32", "FP64"}


def _decoders(element: Any) -> list[Any]:
    decoders = []
    kind = element
    for _ in range(_TYPED_DEPTH):
        kind = GenericAlias(list, (kind,))
        decoders.append(msgspec.json.Decoder(kind).decode)
    return decoders


_BOOL_DECODERS = _decoders(bool)
_INT_DECODERS = _decoders(int)
_FLOAT_DECODERS = _decoders(float)
_STRING_DECODERS = _decoders(str)


def _decoders_for(datatype: DataType) -> list[Any]:
    if datatype.is_bytes:
        return _STRING_DECODERS
    if datatype.name in _FLOATS:
        return _FLOAT_DECODERS
    return _BOOL_DECODERS if datatype.name == "BOOL" else _INT_DECODERS


def array_from_json(
    data: object, datatype: DataType, shape: tuple[int, ...], tensor: str
) -> NDArray[np.generic]:
    """Build the tensor from its undecoded text (msgspec.Raw, BigArray) or from decoded values.

    `tensor` names it in errors, e.g. "input 'A' of model 'm'". Raises InvalidArgumentError.
    """
    if not datatype.json_allowed:
        raise InvalidArgumentError(
            f"{tensor} has datatype {datatype.name}, which JSON 'data' cannot carry; send it as "
            "binary data"
        )
    try:
        array = _from_big(data, datatype) if isinstance(data, BigArray) else None
        if array is None:
            text = msgspec.Raw(bytes(data.text)) if isinstance(data, BigArray) else data
            values = _values(text, datatype, tensor)
            _check_count(len(values), shape, tensor)
            return _to_array(values, datatype).reshape(shape)
        _check_count(len(array), shape, tensor)
        return array.reshape(shape)
    except OverflowError as error:
        raise InvalidArgumentError(
            f"Unable to parse 'data' of {tensor}: an element is out of the range of "
            f"{datatype.name} ({error})"
        ) from None
    except ValueError as error:
        raise InvalidArgumentError(f"{tensor} has an impossible shape: {error}") from None


def _check_count(got: int, shape: tuple[int, ...], tensor: str) -> None:
    count = math.prod(shape)
    if got != count:
        raise InvalidArgumentError(
            f"Unable to parse 'data' of {tensor}: shape {list(shape)} needs {count} elements, got "
            f"{got}"
        )


def _from_big(data: BigArray, datatype: DataType) -> NDArray[np.generic] | None:
    if datatype.is_bytes:
        return None
    with np.errstate(over="ignore"):
        return data.convert(_decoders_for(datatype)[0], np.dtype(datatype.dtype))


def flat_values(data: object, datatype: DataType, tensor: str) -> list[Any]:
    """The elements of decoded JSON in row-major order. Raises InvalidArgumentError."""
    return list(_walk(data, datatype, tensor))


def _to_array(values: list[Any], datatype: DataType) -> NDArray[np.generic]:
    if datatype.is_bytes:
        array = np.empty(len(values), dtype=np.object_)
        array[:] = [value.encode() for value in values]
        return array
    # A double beyond the range of FP32 becomes an infinity, as in C.
    with np.errstate(over="ignore"):
        return np.array(values, dtype=datatype.dtype)


def _values(data: object, datatype: DataType, tensor: str) -> list[Any]:
    if not isinstance(data, msgspec.Raw):
        return list(_walk(data, datatype, tensor))
    text = memoryview(data)
    depth = _opening_depth(text)
    if 1 <= depth <= _TYPED_DEPTH:
        try:
            values: list[Any] = _decoders_for(datatype)[depth - 1](text)
        except (msgspec.DecodeError, RecursionError):
            pass  # The walk below finds out what is wrong, or that the nesting is only uneven.
        else:
            for _ in range(depth - 1):
                values = list(itertools.chain.from_iterable(values))
            return values
    try:
        decoded = msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep(tensor) from None
    except msgspec.DecodeError as error:
        raise malformed(bytes(text), error, f"'data' of {tensor}") from None
    return list(_walk(decoded, datatype, tensor))


def _opening_depth(text: memoryview) -> int:
    head = bytes(text[:256])
    depth = 0
    for character in head:
        if character == 0x5B:
            depth += 1
        elif character not in b" \t\r\n":
            break
    return depth


def _walk(data: object, datatype: DataType, tensor: str) -> Iterator[Any]:
    """Every element in row-major order, checked for its type; without recursion."""
    if not isinstance(data, list):
        raise InvalidArgumentError(f"Unable to parse 'data' of {tensor}: it must be an array")
    stack: list[Iterator[Any]] = [iter(data)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, list):
                if len(stack) >= MAX_DEPTH:
                    raise _too_deep(tensor)
                stack.append(iter(item))
                break
            yield _checked(item, datatype, tensor)
        else:
            stack.pop()


def _checked(item: object, datatype: DataType, tensor: str) -> object:
    is_bool = isinstance(item, bool)
    if datatype.is_bytes:
        is_right = isinstance(item, str)
    elif datatype.name == "BOOL":
        is_right = is_bool
    elif datatype.name in _FLOATS:
        is_right = isinstance(item, int | float) and not is_bool
    else:
        is_right = isinstance(item, int) and not is_bool
    if not is_right:
        raise InvalidArgumentError(
            f"Unable to parse 'data' of {tensor}: an element is {json.dumps(item)[:40]}, which is "
            f"no {datatype.name}"
        )
    return item


def _too_deep(tensor: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Unable to parse 'data' of {tensor}: it is nested deeper than {MAX_DEPTH} levels"
    )


def is_numeric(output: OutputTensor) -> bool:
    """JSON carries it as numbers or booleans."""
    return output.datatype.json_allowed and not output.datatype.is_bytes


def output_data(output: OutputTensor) -> object:
    """The flat `data` member of an output, in a form that orjson encodes.

    Raises InvalidArgumentError where JSON cannot carry the tensor.
    """
    if not output.datatype.json_allowed:
        raise InvalidArgumentError(
            f"output '{output.name}' has datatype {output.datatype.name}, which JSON cannot carry; "
            "request it with the parameter binary_data=true"
        )
    flat = output.array.reshape(-1)
    if output.datatype.is_bytes:
        return _strings(output.name, flat)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return orjson.Fragment(json.dumps(flat.tolist(), separators=(",", ":")).encode())
    return np.ascontiguousarray(flat)


def _strings(name: str, flat: NDArray[Any]) -> list[str]:
    try:
        return [item.decode() if isinstance(item, bytes) else str(item) for item in flat]
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"output '{name}' holds bytes that are not UTF-8 text ({error.reason} at byte "
            f"{error.start}); request it with the parameter binary_data=true"
        ) from None
