"""What the OpenAPI schema cannot read off the code: how a token is sent, what errors look like.

Imported at start.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema


class ApiTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "console.accounts.authentication.ApiTokenAuthentication"
    name = "apiToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of the page API tokens: Authorization: Bearer conch_...",
        }


ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "fields"],
            "description": "Some errors tell more, in members of their own.",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string", "description": "A sentence for the reader."},
                "fields": {
                    "type": "object",
                    "description": "What is wrong with members of the request, by their names.",
                    "additionalProperties": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
ERRORS = {
    "4XX": "The request cannot be served as it is.",
    "503": "Redis or the workers cannot be reached.",
    "507": "The disk of the repository is full or read-only.",
}


def add_errors(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Every operation may answer an error, in the form of `console.core.exceptions`."""
    result.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path in result["paths"].values():
        for operation in path.values():
            for status, description in ERRORS.items():
                answer = {"description": description, "content": content}
                operation["responses"].setdefault(status, answer)
    return result
