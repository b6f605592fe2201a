"""ONNX Runtime's words for types. Pure; load threads enter."""

from __future__ import annotations

from serving.datatypes import BY_NAME, DataType

_TYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
    "tensor(bfloat16)": "BF16",
}


def datatype_of(type_text: str) -> DataType | None:
    """Of a text such as tensor(float); None for what no request can carry, seq(tensor(float))."""
    name = _TYPES.get(type_text)
    return BY_NAME[name] if name else None
