"""A cached answer as bytes, for stores outside of the process. Pure; any thread.

Layout: mark, length of the head, head (MessagePack), then the raw tensors one after the other.
"""

from __future__ import annotations

import struct

import msgspec
import numpy as np

from serving.cache.base import CachedAnswer
from serving.datatypes import BY_NAME, bytes_from_array, deserialize_bytes, element_count
from serving.errors import ServingError
from serving.response import OutputTensor, ParameterValue

_MARK = b"CNR1"
_START = struct.Struct("<4sI")


class _Tensor(msgspec.Struct, array_like=True):
    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int


class _Head(msgspec.Struct, array_like=True):
    tensors: list[_Tensor]
    parameters: dict[str, ParameterValue]


_decode_head = msgspec.msgpack.Decoder(_Head).decode


def encode(answer: CachedAnswer) -> bytes:
    buffers = [bytes_from_array(output.array, output.datatype) for output in answer.outputs]
    tensors = [
        _Tensor(output.name, output.datatype.name, tuple(output.shape), len(raw))
        for output, raw in zip(answer.outputs, buffers, strict=True)
    ]
    head = msgspec.msgpack.encode(_Head(tensors, dict(answer.parameters)))
    return b"".join([_START.pack(_MARK, len(head)), head, *buffers])


def decode(data: bytes) -> CachedAnswer:
    """Read-only views on `data`. Raises ValueError for anything but what `encode` gave."""
    view = memoryview(data)
    try:
        mark, length = _START.unpack_from(view)
        if mark != _MARK:
            raise ValueError("no answer of the response cache")
        start = _START.size + length
        head = _decode_head(view[_START.size : start])
        outputs = []
        for item in head.tensors:
            outputs.append(_tensor(item, view[start : start + item.size]))
            start += item.size
    except (struct.error, msgspec.MsgspecError, KeyError, ServingError) as error:
        raise ValueError(f"no answer of the response cache: {error}") from error
    return CachedAnswer(tuple(outputs), head.parameters)


def _tensor(item: _Tensor, raw: memoryview) -> OutputTensor:
    datatype = BY_NAME[item.datatype]
    if datatype.is_bytes:
        array = deserialize_bytes(raw, element_count(item.shape), item.name)
    else:
        array = np.frombuffer(raw, dtype=datatype.dtype)
    return OutputTensor(item.name, datatype, item.shape, array.reshape(item.shape))
