"""What may stand in a config.pbtxt, for completion in the editors of models and of uploads."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from console.core import workers
from console.core.parameter_keys import keys_by_name
from serving.config.backend_files import ENSEMBLE, MODEL_FILES
from serving.config.schema import MODEL_CONFIG, FieldInfo, MessageInfo

_BACKENDS = frozenset(item.backend for item in MODEL_FILES)
_PLATFORMS = frozenset(item.platform for item in MODEL_FILES if item.platform) | {ENSEMBLE}


def completion_schema() -> dict[str, Any]:
    """The messages of ModelConfig and their fields, for completion in the editor, and the keys of
    parameters by backend; the names of backends are those that the workers have now.
    """
    fixed = _of_messages()
    root = fixed["messages"][fixed["root"]]
    there = {item.name for worker in workers.known()[0] for item in worker.backends}
    named = {"backend": there or _BACKENDS, "platform": _PLATFORMS}
    fields = root | {name: root[name] | {"values": sorted(named[name])} for name in named}
    messages = fixed["messages"] | {fixed["root"]: fields}
    return fixed | {"messages": messages, "parameters": keys_by_name()}


@lru_cache(maxsize=1)
def _of_messages() -> dict[str, Any]:
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
