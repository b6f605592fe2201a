"""ModelConfig as Triton's JSON, both ways: GET /config, and the override of a load (REP-059).

Names are those of the .proto file, every primitive is printed, 64-bit integers are numbers.
Pure functions; any thread.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from serving.config.protobuf import pb
from serving.config.schema import (
    INTEGER_RANGES,
    MODEL_CONFIG,
    FieldInfo,
    MessageInfo,
    map_path,
)
from serving.config.suggest import enum_hint, field_hint
from serving.errors import InvalidArgumentError

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(config: pb.ModelConfig) -> dict[str, Any]:
    """The config as GET /v2/models/<model>/config shows it."""
    return _message_to(config, MODEL_CONFIG)


def _message_to(message: Any, info: MessageInfo) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, field in info.fields.items():
        if field.has_presence and not message.HasField(name):
            continue
        value = getattr(message, name)
        if field.is_map:
            inner = field.message
            entry = inner.fields["value"] if inner is not None else field
            out[name] = {str(key): _value_to(item, entry) for key, item in value.items()}
        elif field.is_repeated:
            out[name] = [_value_to(item, field) for item in value]
        else:
            out[name] = _value_to(value, field)
    return out


def _value_to(value: Any, field: FieldInfo) -> Any:
    if field.message is not None:
        return _message_to(value, field.message)
    if field.kind == "enum":
        return next((name for name, number in field.enum_numbers.items() if number == value), value)
    if field.kind == "float":
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if field.descriptor.type == FieldDescriptor.TYPE_FLOAT:
            return float(str(np.float32(value)))
    return value


def from_json(text: str | bytes) -> pb.ModelConfig:
    """Read a JSON ModelConfig, e.g. the `config` parameter of a load.

    Raises: InvalidArgumentError naming the place and the mend.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"Invalid config override: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _wrong("the config", "a JSON object", document)
    config = pb.ModelConfig()
    _message_from(document, config, MODEL_CONFIG, "", ())
    return config


def _message_from(
    document: Mapping[str, Any],
    message: Any,
    info: MessageInfo,
    path: str,
    outer: tuple[MessageInfo, ...],
) -> None:
    chosen: dict[str, str] = {}
    for key, value in document.items():
        field = info.fields.get(key) or info.fields.get(_snake(key))
        if field is None:
            hint, _ = field_hint(key, info, outer)
            where = f" in '{path}'" if path else ""
            raise InvalidArgumentError(
                f"Invalid config override: unknown field '{key}'{where}; {hint}"
            )
        if value is None:
            continue
        place = f"{path}.{field.name}" if path else field.name
        if field.oneof and chosen.setdefault(field.oneof, field.name) != field.name:
            raise InvalidArgumentError(
                f"Invalid config override: '{place}' and '{chosen[field.oneof]}' exclude each other"
            )
        _field_from(value, message, field, place, (*outer, info))


def _field_from(
    value: Any, message: Any, field: FieldInfo, path: str, outer: tuple[MessageInfo, ...]
) -> None:
    if field.is_map:
        _map_from(value, message, field, path, outer)
    elif field.is_repeated:
        if not isinstance(value, list):
            raise _wrong(f"'{path}'", "an array", value)
        for index, item in enumerate(value):
            place = f"{path}[{index}]"
            if field.message is None:
                getattr(message, field.name).append(_scalar_from(item, field, place))
            else:
                element = getattr(message, field.name).add()
                _message_from(_object(item, place), element, field.message, place, outer)
    elif field.message is not None:
        nested = getattr(message, field.name)
        nested.SetInParent()
        _message_from(_object(value, path), nested, field.message, path, outer)
    else:
        setattr(message, field.name, _scalar_from(value, field, path))


def _map_from(
    value: Any, message: Any, field: FieldInfo, path: str, outer: tuple[MessageInfo, ...]
) -> None:
    if field.message is None:
        return
    if isinstance(value, list):
        raise InvalidArgumentError(
            f"Invalid config override: '{path}' is a map: write {{\"<key>\": <value>}}, "
            f"not a list of key and value pairs"
        )
    entry = field.message.fields["value"]
    key_field = field.message.fields["key"]
    target = getattr(message, field.name)
    for name, item in _object(value, path).items():
        place = map_path(path, name)
        key = (
            _text(name, place)
            if key_field.kind == "string"
            else _scalar_from(name, key_field, place)
        )
        if entry.message is None:
            target[key] = _scalar_from(item, entry, place)
        else:
            _message_from(_object(item, place), target[key], entry.message, place, outer)


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(f"'{path}'", "an object", value)
    return value


def _scalar_from(value: Any, field: FieldInfo, path: str) -> Any:
    if field.kind == "string":
        if not isinstance(value, str):
            raise _wrong(f"'{path}'", "a string", value)
        return _text(value, path)
    if field.kind == "bool":
        if not isinstance(value, bool):
            raise _wrong(f"'{path}'", "true or false", value)
        return value
    if field.kind == "enum":
        return _enum_from(value, field, path)
    if field.kind == "float":
        return _float_from(value, path)
    return _integer_from(value, field, path)


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(f"'{path}'", "text without half characters", value) from None
    return value


def _enum_from(value: Any, field: FieldInfo, path: str) -> int:
    if isinstance(value, str):
        number = field.enum_numbers.get(value.upper())
        if number is None:
            hint = enum_hint(value, field)
            raise InvalidArgumentError(
                f"Invalid config override: '{path}' has no value {value!r}; {hint}"
            )
        return number
    if isinstance(value, int) and value in field.enum_numbers.values():
        return int(value)
    raise _wrong(f"'{path}'", f"one of {', '.join(field.enum_numbers)}", value)


def _float_from(value: Any, path: str) -> float:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(f"'{path}'", "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _wrong(f"'{path}'", "a number that a double can hold", value) from None


def _integer_from(value: Any, field: FieldInfo, path: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(f"'{path}'", "an integer", value)
    low, high = INTEGER_RANGES[field.kind]
    if not low <= value <= high:
        raise _wrong(f"'{path}'", f"an integer from {low} to {high}", value)
    return value


def _wrong(what: str, wanted: str, value: Any) -> InvalidArgumentError:
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return InvalidArgumentError(f"Invalid config override: {what} must be {wanted}, got {shown}")


def _snake(name: str) -> str:
    """lowerCamelCase, which JSON of protobuf allows too."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match.group().lower(), name)
