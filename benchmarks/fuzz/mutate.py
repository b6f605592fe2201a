"""Mutations of JSON values, bytes and protobuf messages. Pure but for the random numbers given."""

from __future__ import annotations

import copy
import json
import re
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

INTEGERS = [
    *(0, 1, -1, 2, 3, 7, 8, 16, 100, 255, 256, 65_535, 65_537, 10**5, 10**9),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64),
    *(-(2**63) - 1, 10**30),
]
FLOATS = [0.0, -0.0, 0.5, 1e300, -1e300, 5e-324, float("nan"), float("inf"), float("-inf")]
STRINGS = [
    *("", " ", "INPUT0", "OUTPUT0", "FP32", "INT64", "BYTES", "UINT8", "BOOL", "BF16", "FP16"),
    *("identity", "strings", "churn", "words", "nobody", "1", "-1", "99", "true", "null"),
    *("../../etc/passwd", "/dev/null", "/", ".", "..", "a/b", "%s%n", "%2e%2e", "\0", "\n\r\t"),
    *("\ud800", "\u00e9\U0001f600", "\u202e", "x" * 1000, "\\", '"', "{}", "[[[", "nan", "1e999"),
    *("data", "parameters", "binary_data_size", "shared_memory_region", "sequence_id", "timeout"),
]
NAMES = [
    *("id", "name", "shape", "datatype", "data", "inputs", "outputs", "parameters", "priority"),
    *("binary_data", "binary_data_size", "binary_data_output", "classification", "timeout"),
    *("sequence_id", "sequence_start", "sequence_end", "shared_memory_region"),
    *("shared_memory_offset", "shared_memory_byte_size", "triton_enable_empty_final_response"),
    *("trace_level", "trace_rate", "log_verbose_level", "stream", "model", "messages", "prompt"),
]
_TOKENS = [
    *(b"\0", b"\xff", b"\xff\xff\xff\xff", b"[", b"]", b"{", b"}", b'"', b"\\u", b"e999", b"-"),
    *(b"\r\n", b"\n", b"NaN", b"null", b":", b",", b"\x80", b"\xed\xa0\x80", b"9" * 40),
]
_DEEP = "@%d@"
"""Stands for so many nested arrays until the JSON is text."""
_DEEP_TEXT = re.compile('"@([0-9]+)@"')


class Mutator:
    """What is done to one request; the same seed does the same."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def count(self) -> int:
        """How many changes: mostly one."""
        return min(6, 1 + int(self.random.expovariate(1.2)))

    # --- JSON ------------------------------------------------------------------------------

    def json_text(self, value: Any) -> bytes:
        """The value, changed here and there; now and then its text too."""
        for _ in range(self.count()):
            value = self.json_value(value)
        separators = self.random.choice([(",", ":"), (", ", ": "), (" ,\t", "\n:")])
        text = json.dumps(value, separators=separators, ensure_ascii=self.chance(0.8))
        data = _DEEP_TEXT.sub(_deep, text).encode("utf-8", "surrogatepass")
        return self.data(data) if self.chance(0.15) else data

    def json_value(self, value: Any) -> Any:
        """One place of it, chosen at random, is another."""
        value = copy.deepcopy(value)
        places: list[tuple[Any, Any]] = []
        _collect(value, places)
        if not places or self.chance(0.02):
            return self.junk()
        parent, key = self.random.choice(places)
        self._change(parent, key)
        return value

    def _change(self, parent: Any, key: Any) -> None:
        old = parent[key]
        match self.random.randrange(8):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[self.random.choice(NAMES)] = parent.pop(key)
            case 1:
                parent.extend([old] * self.random.choice([1, 2, 50]))
            case 2 if isinstance(parent, dict):
                parent[self.random.choice(NAMES)] = self.junk()
            case 3:
                parent[key] = [old]
            case 4 if isinstance(old, int | float):
                parent[key] = self.number(old)
            case _:
                parent[key] = self.junk()

    def number(self, old: float) -> Any:
        near = [old + 1, old - 1, -old, old * 2, str(old), old + 0.5]
        return self.random.choice([*near, *INTEGERS])

    def junk(self) -> Any:
        """Any JSON value; mostly small."""
        match self.random.randrange(10):
            case 0 | 1 | 2:
                return self.random.choice(INTEGERS)
            case 3:
                return self.random.choice(FLOATS)
            case 4 | 5 | 6:
                return self.random.choice(STRINGS)
            case 7:
                return self.random.choice([None, True, False, [], {}, [[]], [None], [{}]])
            case 8:
                return [self.junk() for _ in range(self.random.randrange(4))]
            case _:
                return self._large_junk()

    def _large_junk(self) -> Any:
        if self.chance(0.5):
            return [self.random.choice([1, 0.5, "x", None])] * self.random.choice([5, 500, 5000])
        return _DEEP % self.random.choice([3, 90, 101, 900, 20_000])

    # --- bytes -----------------------------------------------------------------------------

    def data(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.count()):
            self._change_bytes(changed)
        return bytes(changed)

    def _change_bytes(self, data: bytearray) -> None:
        at = self.random.randrange(len(data) + 1)
        end = min(len(data), at + self.random.choice([1, 2, 4, 8, 64]))
        match self.random.randrange(6):
            case 0:
                data[at:at] = self.random.choice(_TOKENS)
            case 1:
                del data[at:end]
            case 2:
                del data[at:]
            case 3:
                data[at:at] = data[at:end] * self.random.choice([1, 2, 30])
            case _ if at < len(data):
                data[at] = self.random.choice([data[at] ^ (1 << self.random.randrange(8)), 0, 255])
            case _:
                data += self.random.randbytes(4)

    # --- protobuf --------------------------------------------------------------------------

    def message(self, message: Message) -> None:
        """Some fields of it or of what is in it, in place."""
        for _ in range(self.count()):
            target = message
            while True:
                inner = _inner_messages(target)
                if not inner or self.chance(0.4):
                    break
                target = self.random.choice(inner)
            self._change_field(target)

    def _change_field(self, message: Message) -> None:
        fields: list[FieldDescriptor] = list(message.DESCRIPTOR.fields)  # type: ignore[arg-type]
        if not fields:
            return
        field = self.random.choice(fields)
        if self.chance(0.15):
            message.ClearField(field.name)
            return
        if _is_map(field):
            self._change_map(message, field)
        elif field.is_repeated:
            self._change_repeated(getattr(message, field.name), field)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, self._scalar(field))

    def _change_map(self, message: Message, field: FieldDescriptor) -> None:
        entries = getattr(message, field.name)
        assert field.message_type is not None
        value = field.message_type.fields_by_name["value"]
        key = self.random.choice(NAMES)
        if value.message_type is not None:
            self._change_field(entries[key])
        else:
            entries[key] = self._scalar(value)

    def _change_repeated(self, items: Any, field: FieldDescriptor) -> None:
        times = self.random.choice([1, 1, 1, 2, 200])
        if field.message_type is not None:
            for _ in range(times):
                added = items.add()
                if len(items) > 1 and self.chance(0.5):
                    added.CopyFrom(items[0])
        elif items and self.chance(0.4):
            items[self.random.randrange(len(items))] = self._scalar(field)
        elif items and self.chance(0.4):
            del items[self.random.randrange(len(items)) :]
        else:
            items.extend([self._scalar(field)] * times)

    def _scalar(self, field: FieldDescriptor) -> Any:
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self.chance(0.5)
        if kind == FieldDescriptor.CPPTYPE_STRING:
            text = self.random.choice(STRINGS).encode("utf-8", "replace")
            is_text = field.type == FieldDescriptor.TYPE_STRING
            return text.decode() if is_text else self.data(text)
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return self.random.choice([0.0, -1.5, float("nan"), float("inf"), 1e30])
        signed, bits = _INTEGER_KINDS.get(kind, (True, 8))
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return self.random.choice([number for number in INTEGERS if low <= number <= high])


_INTEGER_KINDS = {
    FieldDescriptor.CPPTYPE_INT32: (True, 32),
    FieldDescriptor.CPPTYPE_INT64: (True, 64),
    FieldDescriptor.CPPTYPE_UINT32: (False, 32),
    FieldDescriptor.CPPTYPE_UINT64: (False, 64),
}


def _deep(match: re.Match[str]) -> str:
    depth = int(match[1])
    opening = '{"parameters":' if depth % 2 else "["
    return opening * depth + "1" + ("}" if depth % 2 else "]") * depth


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    """Every member and element within, but only the first of a long list."""
    keys = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = list(range(min(len(value), 5)))
    for key in keys:
        places.append((value, key))
        if len(places) < 200:
            _collect(value[key], places)


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def _inner_messages(message: Message) -> list[Message]:
    found: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if _is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                found += value.values()
        elif field.is_repeated:
            found += value
        else:
            found.append(value)
    return found
