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
    # The protocol has no FP8: its bits travel.
    "tensor(float8e4m3fn)": "UINT8",
    "tensor(float8e4m3fnuz)": "UINT8",
    "tensor(float8e5m2)": "UINT8",
    "tensor(float8e5m2fnuz)": "UINT8",
}
RAW_TYPES = {
    "tensor(bfloat16)": 16,
    "tensor(float8e4m3fn)": 17,
    "tensor(float8e4m3fnuz)": 18,
    "tensor(float8e5m2)": 19,
    "tensor(float8e5m2fnuz)": 20,
}
"""Types that NumPy does not have -> their number in onnx.proto."""


def datatype_of(type_text: str) -> DataType | None:
    """Of a text such as tensor(float); None for what no request can carry, seq(tensor(float))."""
    name = _TYPES.get(type_text)
    return BY_NAME[name] if name else None
