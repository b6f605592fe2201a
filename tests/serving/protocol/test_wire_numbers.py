"""The messages on the wire are those that public clients were generated from. TOOL-008.

tests/data/wire_numbers.txt has names, numbers and types of every message; `r` is repeated, `m<K,V>`
a map, `o:<name>` a member of that oneof.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from tritonclient.grpc import service_pb2

LINES = (Path(__file__).parents[2] / "data/wire_numbers.txt").read_text().splitlines()
TYPES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return field.message_type.name
    return field.enum_type.name if field.enum_type is not None else TYPES[field.type]


def described(field: FieldDescriptor) -> str:
    """As the file has it."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        kind = f"m<{type_of(key)},{type_of(value)}>"
    elif field.is_repeated:
        kind = f"r {type_of(field)}"
    else:
        kind = type_of(field)
    oneof = field.containing_oneof
    return f"{field.name}={field.number} ({kind}{f' o:{oneof.name}' if oneof else ''})"


def members(descriptor: Descriptor | EnumDescriptor) -> set[str]:
    if isinstance(descriptor, EnumDescriptor):
        return {f"{value.name}={value.number}" for value in descriptor.values}
    return {described(field) for field in descriptor.fields}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition(":")[0])
def test_messages_have_the_members_that_generated_clients_know(line: str) -> None:
    name, _, text = line.partition(": ")
    is_enum = name.endswith(" (enum)")
    full_name = "inference." + name.removesuffix(" (enum)")
    pool = service_pb2.DESCRIPTOR.pool
    found = pool.FindEnumTypeByName(full_name) if is_enum else pool.FindMessageTypeByName(full_name)

    wanted = set() if text == "(empty)" else set(re.split("; ", text))

    assert wanted - members(found) == set()
