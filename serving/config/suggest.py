"""Did-you-mean: from the names that people write to the names that ModelConfig has.

Pure functions; any thread.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from serving.config.schema import FieldInfo, MessageInfo, fields_elsewhere

_FIELD_ALIASES = {
    "default_model_name": "default_model_filename",
    "model_filename": "default_model_filename",
    "model_name": "name",
    "inputs": "input",
    "outputs": "output",
    "datatype": "data_type",
    "dtype": "data_type",
    "type": "data_type",
    "shape": "dims",
    "dim": "dims",
    "dimensions": "dims",
    "instance_groups": "instance_group",
    "instances": "instance_group",
    "batch_size": "max_batch_size",
    "versions": "version_policy",
    "labels": "label_filename",
    "gpu": "gpus",
    "steps": "step",
    "warmup": "model_warmup",
    "max_queue_delay_us": "max_queue_delay_microseconds",
}
"""Wrong name -> right one, used where the message has the right one. The metadata of a model
(`inputs`, `datatype`, `shape`) is often copied into a config."""

_DATA_TYPES = {
    "FLOAT": "TYPE_FP32",
    "FLOAT16": "TYPE_FP16",
    "HALF": "TYPE_FP16",
    "FLOAT32": "TYPE_FP32",
    "FLOAT64": "TYPE_FP64",
    "DOUBLE": "TYPE_FP64",
    "BFLOAT16": "TYPE_BF16",
    "BYTES": "TYPE_STRING",
    "STR": "TYPE_STRING",
    "INT": "TYPE_INT32",
    "LONG": "TYPE_INT64",
    "UINT": "TYPE_UINT32",
    "BOOLEAN": "TYPE_BOOL",
}


def nearest(word: str, names: Iterable[str]) -> str:
    """The name that `word` most likely meant, or ""."""
    folded = {name.casefold(): name for name in names}
    exact = folded.get(word.casefold())
    if exact:
        return exact
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else ""


def field_hint(
    word: str, message: MessageInfo, enclosing: Iterable[MessageInfo]
) -> tuple[str, str]:
    """How to mend an unknown field `word` of `message`, which lies inside `enclosing`; and the
    name that was meant, or ""."""
    alias = _FIELD_ALIASES.get(word.casefold(), "")
    if alias in message.fields:
        return f"did you mean '{alias}'?", alias
    if any(word in outer.fields for outer in enclosing):
        return f"'{word}' belongs one level up: is a closing '}}' missing before it?", ""
    places = fields_elsewhere(word)
    if places:
        return f"'{word}' belongs inside {' or '.join(places[:3])} {{ }}", ""
    close = nearest(word, message.fields)
    if close:
        return f"did you mean '{close}'?", close
    known = ", ".join(message.fields)
    hint = f"known here: {known}" if len(known) < 90 else "see the ModelConfig reference"
    return hint, ""


def enum_meant(word: str, field: FieldInfo) -> str:
    """The name of an enum field's value that `word` most likely meant, or ""."""
    names = list(field.enum_numbers)
    bare = word.strip("\"'").upper()
    if "TYPE_INVALID" in field.enum_numbers:
        stem = bare.removeprefix("TYPE_")
        meant = _DATA_TYPES.get(stem, f"TYPE_{stem}")
    else:
        prefix = names[0].rsplit("_", 1)[0]
        meant = bare if bare in field.enum_numbers else f"{prefix}_{bare}"
    return meant if meant in field.enum_numbers else nearest(bare, names)


def enum_hint(word: str, field: FieldInfo) -> str:
    """How to mend an unknown value `word` of an enum field."""
    meant = enum_meant(word, field)
    if meant:
        return f"write {meant}, without quotes" if word[:1] in "\"'" else f"did you mean {meant}?"
    return f"one of {', '.join(name for name in field.enum_numbers if name != 'TYPE_INVALID')}"
