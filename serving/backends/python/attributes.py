"""What a Python-based backend says of itself (BE-006, BE-010): `get_backend_attributes`.

A static method that returns a dict. `preferred_instance_groups`, a list of dicts with kind and
count in the order of preference, gives a model without instance_group the first one that this
machine can have. In the process of auto-complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving import devices
from serving.backends.base import ModelContext
from serving.backends.python import model_file
from serving.config.protobuf import pb
from serving.errors import ModelLoadError

HOOK = "get_backend_attributes"
_GROUPS = "preferred_instance_groups"


def apply(model_class: type[Any], context: ModelContext) -> None:
    """Fill in the instance groups of `context.config`. Raises: ModelLoadError."""
    hook = getattr(model_class, HOOK, None)
    if hook is None or context.runtime_directory is None:
        return
    found = model_file.call(HOOK, context, hook)
    groups = found.get(_GROUPS, []) if isinstance(found, Mapping) else None
    if not isinstance(groups, list):
        raise ModelLoadError(
            f"model '{model_file.model_name(context)}': {HOOK} must return a dict whose {_GROUPS} "
            f"is a list, found {found!r:.200}"
        )
    if context.config.instance_group:
        return
    for item in groups:
        group = _group(item, context)
        if group.kind != pb.ModelInstanceGroup.KIND_GPU or devices.gpu_count():
            context.config.instance_group.append(group)
            return


def _group(item: object, context: ModelContext) -> pb.ModelInstanceGroup:
    try:
        assert isinstance(item, Mapping)
        kind = pb.ModelInstanceGroup.Kind.Value(item["kind"])
        return pb.ModelInstanceGroup(kind=kind, count=int(item.get("count", 1)))
    except (AssertionError, KeyError, ValueError, TypeError) as error:
        raise ModelLoadError(
            f"model '{model_file.model_name(context)}': {_GROUPS} of {HOOK} must hold dicts with "
            f"kind (KIND_CPU, KIND_GPU, ...) and count, found {item!r:.200}"
        ) from error
