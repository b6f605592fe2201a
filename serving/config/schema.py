"""The shape of ModelConfig, read once from its descriptor into plain dicts that are quick to walk.

Pure data, built at import; any thread may read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from serving.config.protobuf import pb

_KINDS = {
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "float",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_MESSAGE: "message",
}


INTEGER_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}


@dataclass(slots=True, eq=False)
class FieldInfo:
    name: str
    kind: str
    """int32, int64, uint32, uint64, float, bool, string, enum or message."""
    is_repeated: bool
    is_map: bool
    has_presence: bool
    oneof: str
    message: MessageInfo | None
    enum_numbers: dict[str, int]
    descriptor: FieldDescriptor

    @property
    def is_message(self) -> bool:
        return self.message is not None


@dataclass(slots=True, eq=False)
class MessageInfo:
    full_name: str
    fields: dict[str, FieldInfo]
    """In the order of the .proto file."""


_known: dict[str, MessageInfo] = {}


def _message(descriptor: Descriptor) -> MessageInfo:
    info = _known.get(descriptor.full_name)
    if info is None:
        info = _known[descriptor.full_name] = MessageInfo(descriptor.full_name, {})
        for item in descriptor.fields:
            info.fields[item.name] = _field(item)
    return info


def _field(item: FieldDescriptor) -> FieldInfo:
    nested: Any = item.message_type
    enum: Any = item.enum_type
    oneof: Any = item.containing_oneof
    return FieldInfo(
        name=item.name,
        kind=_KINDS[item.type],
        is_repeated=bool(item.is_repeated),
        is_map=nested is not None and bool(nested.GetOptions().map_entry),
        has_presence=item.has_presence,
        oneof=oneof.name if oneof is not None else "",
        message=_message(nested) if nested is not None else None,
        enum_numbers={value.name: value.number for value in enum.values} if enum else {},
        descriptor=item,
    )


MODEL_CONFIG: MessageInfo = _message(pb.ModelConfig.DESCRIPTOR)


def fields_elsewhere(name: str) -> list[str]:
    """Names of the sections of ModelConfig that have a field `name`, e.g. dynamic_batching."""
    found: list[str] = []

    def look(info: MessageInfo, path: str) -> None:
        for item in info.fields.values():
            if item.message is None:
                continue
            inner = f"{path}.{item.name}" if path else item.name
            if not item.is_map and name in item.message.fields:
                found.append(inner)
            look(item.message, inner)

    look(MODEL_CONFIG, "")
    return found


def map_path(path: str, key: object) -> str:
    """Field path of one map entry: parameters["k"], priority_queue_policy[3]."""
    if isinstance(key, str):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}[{key}]"
