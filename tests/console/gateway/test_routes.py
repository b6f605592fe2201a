"""Which requests pass the gateway, and with which right."""

from __future__ import annotations

import pytest

from console.core.roles import Role
from console.gateway.routes import Own, Refusal, Target, find_route


@pytest.mark.parametrize(
    ("method", "path", "target"),
    [
        ("GET", b"/v2", Target(Role.VIEWER)),
        ("GET", b"/v2/", Target(Role.VIEWER)),
        ("GET", b"/v2/models/m", Target(Role.VIEWER, "m")),
        ("GET", b"/v2/models/m/ready", Target(Role.VIEWER, "m")),
        ("GET", b"/v2/models/m/versions/3/config", Target(Role.VIEWER, "m", "3")),
        ("GET", b"/v2/models/m/stats", Target(Role.VIEWER, "m")),
        ("GET", b"/v2/models/stats", Target(Role.VIEWER)),
        ("POST", b"/v2/repository/index", Target(Role.VIEWER)),
        ("POST", b"/v2/models/m/infer", Target(Role.OPERATOR, "m")),
        ("POST", b"/v2/models/m/versions/2/infer", Target(Role.OPERATOR, "m", "2")),
        ("POST", b"/v2/models/m/generate_stream", Target(Role.OPERATOR, "m")),
        ("POST", b"/v2/models/a%20b/infer", Target(Role.OPERATOR, "a b")),
    ],
)
def test_kserve_paths_are_forwarded(method: str, path: bytes, target: Target) -> None:
    assert find_route(method, path) == target


def test_health_is_answered_by_the_gateway() -> None:
    assert find_route("GET", b"/v2/health/live") == Own("live")
    assert find_route("GET", b"/v2/health/ready") == Own("ready")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("DELETE", b"/v2/models/m", 405),
        ("GET", b"/v2/models/m/infer", 405),
        ("POST", b"/v2/models/m/config", 405),
        ("GET", b"/v2/nothing", 404),
        ("GET", b"/v2/models", 404),
        ("POST", b"/v2/models/m/infer/more", 404),
        ("POST", b"/v2/repository/models/m/load", 403),
        ("POST", b"/v2/repository/models/m/unload", 403),
        ("POST", b"/v2/systemsharedmemory/region/x/register", 403),
        ("POST", b"/v2/logging", 403),
    ],
)
def test_other_paths_are_refused(method: str, path: bytes, status: int) -> None:
    route = find_route(method, path)

    assert isinstance(route, Refusal)
    assert route.status == status
