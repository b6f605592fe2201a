"""Bodies of REST requests: what is not known is refused, not skipped.

`{"versions": [3]}` sent to unload, which knows `version`, must not unload the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request


class Body(serializers.Serializer[Any]):
    """The base of every shape that a request's body is checked against."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = sorted(str(name) for name in data if name not in self.fields)
            if unknown:
                known = ", ".join(self.fields) or "none"
                text = f"There is no such field here; the fields are: {known}."
                raise serializers.ValidationError({name: [text] for name in unknown})
        return super().to_internal_value(data)


def checked(shape: type[Body], request: Request) -> dict[str, Any]:
    """The validated body. Raises ValidationError with fields (400)."""
    body = shape(data=request.data)
    body.is_valid(raise_exception=True)
    data: dict[str, Any] = body.validated_data
    return data
