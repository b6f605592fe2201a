"""What a path under /v1 asks for, which model its body names, and errors as OpenAI has them.

Pure functions. A client of OpenAI's API takes an API token of the console as its `api_key`. Its
requests name the model in the body, so that bodies of this part are read before they are sent on,
up to `MOST_BODY`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from console.core.roles import Role
from console.gateway.routes import Refusal, Target

PREFIX = b"/v1"
MOST_BODY = 64 * 1024 * 1024
"""As a worker's --http-max-input-size."""
INFERENCE = frozenset({"completions", "chat/completions", "embeddings"})
_TYPES = {401: "authentication_error", 403: "permission_error"}


def covers(raw_path: bytes) -> bool:
    return raw_path == PREFIX or raw_path.startswith(PREFIX + b"/")


def find_route(method: str, raw_path: bytes) -> Target | Refusal:
    parts = [unquote(part.decode("latin-1")) for part in raw_path.strip(b"/").split(b"/")][1:]
    asked = "/".join(parts)
    if asked in INFERENCE:
        if method != "POST":
            return Refusal(405, f"/v1/{asked} takes a POST with the request in its body")
        return Target(Role.OPERATOR, is_named_in_body=True)
    if parts[:1] == ["models"] and len(parts) == 3 and parts[2] in ("load", "unload"):
        return Refusal(
            403,
            "Loading and unloading through the console is a deployment: use its pages or "
            "POST /api/v1/models/<name>/load, or the worker's own address",
        )
    if parts[:1] == ["models"] and len(parts) <= 2 and all(parts):
        if method != "GET":
            return Refusal(405, "/v1/models takes a GET")
        return Target(Role.VIEWER, "".join(parts[1:]), lists_models=len(parts) == 1)
    return Refusal(404, f"there is no {raw_path.decode('latin-1')!r} among the routes of OpenAI")


def model_of(body: bytes) -> str:
    """The member `model`; empty where there is none: any worker then says what is wrong."""
    try:
        members = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    model = members.get("model") if isinstance(members, dict) else None
    return model if isinstance(model, str) else ""


def model_list(names: Iterable[str]) -> dict[str, Any]:
    row = {"object": "model", "created": 0, "owned_by": "conch"}
    return {"object": "list", "data": [{"id": name, **row} for name in sorted(names)]}


def error_body(status: int, message: str) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = "model_not_found" if status == 404 else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
