"""What may stand in a config.pbtxt, for completion in the editors of models and of uploads."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from serving.config.schema import MODEL_CONFIG, FieldInfo, MessageInfo


@lru_cache(maxsize=1)
def completion_schema() -> dict[str, Any]:
    """The messages of ModelConfig and their fields, for completion in the editor."""
    messages: dict[str, dict[str, Any]] = {}
    _collect(MODEL_CONFIG, messages)
    return {"root": MODEL_CONFIG.full_name, "messages": messages}


def _collect(info: MessageInfo, messages: dict[str, dict[str, Any]]) -> None:
    if info.full_name in messages:
        return
    fields = messages[info.full_name] = {}
    for item in info.fields.values():
        fields[item.name] = _completion(item)
        if item.message is not None:
            _collect(item.message, messages)


def _completion(item: FieldInfo) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "is_repeated": item.is_repeated,
        "message": item.message.full_name if item.message else None,
        "values": list(item.enum_numbers),
    }
