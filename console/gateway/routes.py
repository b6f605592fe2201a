"""What a path under /v2 asks for: which model, which right, or nothing that passes here.

Pure functions. The gateway forwards what KServe v2 describes of inference and reading. Orders that
change what is served go through /api/v1, where they become deployments with a history; extensions
that name memory of the worker's own machine go to the worker itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from console.core.roles import Role

INFERENCE = frozenset({"infer", "generate", "generate_stream"})
READING = frozenset({"", "ready", "config", "stats"})


@dataclass(frozen=True, slots=True)
class Target:
    """A request that may be forwarded."""

    role: Role
    model: str = ""
    """Empty: any ready worker may answer."""
    version: str = ""
    is_named_in_body: bool = False
    """The model is to be found in the body."""
    lists_models: bool = False
    """Answered by the gateway, from what all workers serve."""

    @property
    def is_inference(self) -> bool:
        return self.role is Role.OPERATOR


@dataclass(frozen=True, slots=True)
class Own:
    """Answered by the gateway itself: live or ready."""

    check: str


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    message: str


Route = Target | Own | Refusal


def find_route(method: str, raw_path: bytes) -> Route:
    parts = [unquote(part.decode("latin-1")) for part in raw_path.strip(b"/").split(b"/")][1:]
    if method not in ("GET", "POST"):
        return Refusal(405, f"{method} is not a method of KServe v2: use GET or POST")
    if not parts:
        return Target(Role.VIEWER)
    head, rest = parts[0], parts[1:]
    if head == "health" and rest in (["live"], ["ready"]):
        return Own(rest[0])
    if head == "models" and rest:
        return _model_route(method, rest)
    if head == "repository":
        return _repository_route(rest)
    if head in ("systemsharedmemory", "cudasharedmemory", "trace", "logging"):
        return Refusal(
            403,
            f"/v2/{head} concerns one worker and does not pass the console: "
            "call that worker's own address, see Workers",
        )
    return _unknown(raw_path)


def _model_route(method: str, rest: list[str]) -> Route:
    if rest == ["stats"]:
        return Target(Role.VIEWER)
    name, rest = rest[0], rest[1:]
    version = ""
    if rest[:1] == ["versions"] and len(rest) >= 2:
        version, rest = rest[1], rest[2:]
    action = "/".join(rest)
    if not name or (action not in INFERENCE and action not in READING):
        return _unknown(b"/v2/models/" + "/".join([name, *rest]).encode())
    if action in INFERENCE:
        if method != "POST":
            return Refusal(405, f"{action} takes a POST with the request in its body")
        return Target(Role.OPERATOR, name, version)
    if method != "GET":
        return Refusal(405, f"reading {action or 'metadata'} of a model takes a GET")
    return Target(Role.VIEWER, name, version)


def _repository_route(rest: list[str]) -> Route:
    if rest == ["index"]:
        return Target(Role.VIEWER)
    return Refusal(
        403,
        "Loading and unloading through the console is a deployment: use its pages or "
        "POST /api/v1/models/<name>/load, or the worker's own address",
    )


def _unknown(raw_path: bytes) -> Refusal:
    return Refusal(404, f"there is no {raw_path.decode('latin-1')!r} in KServe v2")
