"""ModelConfig as canonical config.pbtxt text: what "export effective config" gives.

Pure functions; any thread. `parse(to_pbtxt(config)).config == config` for every config.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf import text_encoding
from google.protobuf.descriptor import FieldDescriptor

from serving.config.protobuf import pb
from serving.config.schema import MODEL_CONFIG, FieldInfo, MessageInfo

_FIRST = ("name", "platform", "backend", "runtime", "max_batch_size")


def to_pbtxt(config: pb.ModelConfig) -> str:
    """The config as text, two spaces an indent, lists inline."""
    return "".join(f"{line}\n" for line in _message(config, MODEL_CONFIG, ""))


def quote(text: str) -> str:
    """A string literal of the text format."""
    escaped = text_encoding.CEscape(text, True)  # type: ignore[arg-type]  # takes str too
    return f'"{escaped}"'


def _message(message: Any, info: MessageInfo, indent: str) -> Iterator[str]:
    names = list(info.fields)
    if info is MODEL_CONFIG:
        names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    for name in names:
        field = info.fields[name]
        value = getattr(message, name)
        if field.is_map:
            yield from _map(value, field, indent)
        elif field.is_repeated:
            yield from _repeated(value, field, indent)
        elif field.message is not None:
            if message.HasField(name):
                yield from _section(f"{indent}{name} {{", value, field.message, indent, "}")
        elif message.HasField(name) if field.has_presence else value or _is_signed_zero(value):
            yield f"{indent}{name}: {_scalar(value, field)}"


def _is_signed_zero(value: Any) -> bool:
    return isinstance(value, float) and math.copysign(1, value) < 0


def _section(head: str, value: Any, info: MessageInfo, indent: str, tail: str) -> Iterator[str]:
    body = list(_message(value, info, f"{indent}  "))
    if not body:
        yield f"{head} {tail}"
        return
    yield head
    yield from body
    yield f"{indent}{tail}"


def _repeated(values: Any, field: FieldInfo, indent: str) -> Iterator[str]:
    if not values:
        return
    if field.message is None:
        items = ", ".join(_scalar(value, field) for value in values)
        yield f"{indent}{field.name}: [ {items} ]"
        return
    yield f"{indent}{field.name} ["
    inner = f"{indent}  "
    for index, value in enumerate(values):
        comma = "," if index + 1 < len(values) else ""
        yield from _section(f"{inner}{{", value, field.message, inner, f"}}{comma}")
    yield f"{indent}]"


def _map(values: Any, field: FieldInfo, indent: str) -> Iterator[str]:
    if field.message is None:
        return
    inner = f"{indent}  "
    key_field, value_field = field.message.fields["key"], field.message.fields["value"]
    for key in sorted(values):
        yield f"{indent}{field.name} {{"
        yield f"{inner}key: {_scalar(key, key_field)}"
        if value_field.message is None:
            yield f"{inner}value: {_scalar(values[key], value_field)}"
        else:
            yield from _section(f"{inner}value {{", values[key], value_field.message, inner, "}")
        yield f"{indent}}}"


def _scalar(value: Any, field: FieldInfo) -> str:
    if field.kind == "string":
        return quote(value)
    if field.kind == "bool":
        return "true" if value else "false"
    if field.kind == "enum":
        known = (name for name, number in field.enum_numbers.items() if number == value)
        return next(known, str(value))
    if field.kind == "float":
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        is_single = field.descriptor.type == FieldDescriptor.TYPE_FLOAT
        return str(np.float32(value)) if is_single else repr(value)
    return str(value)
