"""Random configs, and random ways to write them with the place of every field."""

from __future__ import annotations

from random import Random

import numpy as np

from serving.config.protobuf import pb
from serving.config.schema import INTEGER_RANGES, MODEL_CONFIG, map_path

_STRINGS = [
    "",
    "a",
    "model.onnx",
    "é\u2603😀",
    'say "hi"',
    "it's",
    "back\\slash",
    "a\nb\t\r",
    "\x01#{",
]


def random_config(random: Random) -> pb.ModelConfig:
    config = pb.ModelConfig()
    _fill(config, MODEL_CONFIG, random, 0.25)
    return config


def _fill(message, info, random, share):
    oneofs = set()
    for field in info.fields.values():
        if random.random() > share or (field.oneof and field.oneof in oneofs):
            continue
        oneofs.add(field.oneof)
        target = getattr(message, field.name)
        if field.is_map:
            value_field = field.message.fields["value"]
            for _ in range(random.randint(1, 3)):
                key = _scalar(field.message.fields["key"], random)
                if value_field.message is None:
                    target[key] = _scalar(value_field, random)
                else:
                    _fill(target[key], value_field.message, random, 0.5)
        elif field.is_repeated:
            for _ in range(random.randint(1, 3)):
                if field.message is None:
                    target.append(_scalar(field, random))
                else:
                    _fill(target.add(), field.message, random, 0.5)
        elif field.message is not None:
            target.SetInParent()
            _fill(target, field.message, random, 0.5)
        else:
            setattr(message, field.name, _scalar(field, random))


def _scalar(field, random):
    if field.kind == "string":
        return random.choice(_STRINGS)
    if field.kind == "bool":
        return random.random() < 0.5
    if field.kind == "enum":
        return random.choice(list(field.enum_numbers.values()))
    if field.kind == "float":
        return random.choice([0.0, -0.0, 0.1, 1e30, -2.5, float("inf"), 1 / 3, 5e-324])
    low, high = INTEGER_RANGES[field.kind]
    return random.choice([low, high, 0, 1, random.randint(0, 300), random.randint(low, high)])


def _is_given(message, field) -> bool:
    if field.has_presence:
        return bool(message.HasField(field.name))
    value = getattr(message, field.name)
    return bool(value) or str(value) == "-0.0"


class Writer:
    """Writes a config in a random style; `places` tells where each field begins."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._parts: list[str] = []
        self._length = 0
        self.places: dict[str, int] = {}

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def write(self, config: pb.ModelConfig) -> str:
        self._gap(may_be_empty=True)
        self._message(config, MODEL_CONFIG, "")
        return self.text

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _gap(self, may_be_empty: bool = False) -> None:
        gaps = [" ", "\n", "\r\n", "\t", "  # é {[<\n", "\n\n# // x\r\n"]
        self._put(self._random.choice([*gaps, ""] if may_be_empty else gaps))

    def _message(self, message, info, prefix) -> None:
        fields = list(info.fields.values())
        self._random.shuffle(fields)
        for field in fields:
            value = getattr(message, field.name)
            path = prefix + field.name
            if field.is_map:
                items = [(map_path(path, key), (key, value[key])) for key in value]
                self._repeated(field, path, items)
            elif field.is_repeated:
                self._repeated(field, path, [(f"{path}[{i}]", v) for i, v in enumerate(value)])
            elif _is_given(message, field):
                self._name(field, path)
                self._value(value, field, path)
                self._end()

    def _name(self, field, *paths) -> None:
        for path in paths:
            self.places.setdefault(path, self._length)
        self._put(field.name)
        self._gap(may_be_empty=True)
        if field.message is None or self._random.random() < 0.5:
            self._put(":")
            self._gap(may_be_empty=True)

    def _end(self) -> None:
        self._put(self._random.choice(["", " ", ",", ";"]))
        self._gap()

    def _repeated(self, field, path, items) -> None:
        while items:
            count = self._random.randint(1, len(items))
            now, items = items[:count], items[count:]
            if count == 1 and self._random.random() < 0.5:
                self._name(field, path, now[0][0])
                self._element(field, *now[0])
            else:
                self._name(field, path)
                self._put("[")
                for index, item in enumerate(now):
                    self._gap(may_be_empty=True)
                    if index:
                        self._put(",")
                        self._gap(may_be_empty=True)
                    self.places.setdefault(item[0], self._length)
                    self._element(field, *item)
                self._gap(may_be_empty=True)
                self._put("]")
            self._end()

    def _element(self, field, path, value) -> None:
        if field.is_map:
            self._entry(field, path, value)
        else:
            self._value(value, field, path)

    def _entry(self, field, path, item) -> None:
        key_field, value_field = field.message.fields["key"], field.message.fields["value"]
        opener, closer = self._random.choice(["{}", "<>"])
        self._put(opener)
        halves = [(key_field, "key", item[0]), (value_field, "value", item[1])]
        self._random.shuffle(halves)
        for half, name, value in halves:
            self._gap(may_be_empty=True)
            self._put(name)
            self._put(":" if half.message is None or self._random.random() < 0.5 else " ")
            self._gap(may_be_empty=True)
            self._value(value, half, path)
            self._put(self._random.choice(["", " ", ",", ";"]))
            self._gap()
        self._put(closer)

    def _value(self, value, field, path) -> None:
        if field.message is None:
            self._put(self._scalar(value, field))
            return
        opener, closer = self._random.choice(["{}", "<>"])
        self._put(opener)
        self._gap(may_be_empty=True)
        self._message(value, field.message, f"{path}.")
        self._put(closer)

    def _scalar(self, value, field) -> str:
        choose = self._random.choice
        if field.kind == "string":
            cut = self._random.randint(0, len(value))
            parts = [value[:cut], value[cut:]] if choose([True, False]) else [value]
            return choose([" ", "\n", ""]).join(self._quoted(part) for part in parts)
        if field.kind == "bool":
            return choose(["true", "True", "t", "1"] if value else ["false", "False", "f", "0"])
        if field.kind == "enum":
            names = [name for name, number in field.enum_numbers.items() if number == value]
            return choose([names[0], str(value)])
        if field.kind == "float":
            if np.isinf(value):
                return "inf" if value > 0 else "-inf"
            return choose([repr(value), f"{value!r}f"]) if value < 1e16 else repr(value)
        if value < 0:
            return choose([str(value), hex(value)])
        return choose([str(value), hex(value), f"0{value:o}" if value else "0"])

    def _quoted(self, text: str) -> str:
        quote = self._random.choice("\"'")
        plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        plain = plain.replace("\x01", "\\001").replace(quote, f"\\{quote}")
        return f"{quote}{plain}{quote}"
