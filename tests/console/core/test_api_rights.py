"""Every operation of the REST API against every kind of caller; new ones are found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from console.accounts import services

pytestmark = pytest.mark.django_db

PLACES = {
    "build": "99999",
    "deployment_id": "99999",
    "number": "1",
    "upload_id": "00000000-0000-0000-0000-000000000000",
    "version": "1",
}
# Reads that need a body.
READING_POSTS = frozenset({"/api/v1/models/nobody/check-config"})
METHODS = ("get", "post", "put", "patch", "delete")


def operations() -> list[tuple[str, str]]:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    return [
        (method, re.sub(r"{(\w+)}", lambda found: PLACES.get(found[1], "nobody"), path))
        for path, item in paths.items()
        for method in METHODS
        if method in item
    ]


def status(method: str, path: str, token: str = "") -> int:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = Client().generic(
        method.upper(), path, b"{}", content_type="application/json", headers=headers
    )
    return int(answer.status_code)


def token_of(user: Any, scope: str) -> str:
    return str(services.create_token(actor=user, name=scope, scope=scope, days=1)[1])


def test_nobody_gets_in_without_a_token_or_a_role(stranger: Any) -> None:
    token = token_of(stranger, "deploy")
    found = operations()

    assert len(found) > 25
    assert {status(*operation) for operation in found} == {401}
    assert {status(*operation, token) for operation in found} == {403}


@pytest.mark.parametrize(
    ("role", "scope"), [("viewer", "deploy"), ("operator", "read"), ("admin", "infer")]
)
def test_readers_read_and_change_nothing(make_user: Any, role: str, scope: str) -> None:
    token = token_of(make_user("someone", role), scope)

    for method, path in operations():
        found = status(method, path, token)
        is_reading = method == "get" or path in READING_POSTS
        expected = {200, 400, 404} if is_reading else {403}
        assert found in expected, f"{method} {path}: {found}"


def test_operators_change_and_only_admins_delete_models(operator: Any, admin: Any) -> None:
    operators, admins = token_of(operator, "deploy"), token_of(admin, "deploy")

    for method, path in operations():
        by_operator = status(method, path, operators)
        if method == "delete" and path.startswith("/api/v1/models/"):
            assert by_operator == 403, path
        else:
            assert by_operator in {200, 201, 400, 404}, f"{method} {path}: {by_operator}"
        assert status(method, path, admins) in {200, 201, 400, 404}, f"{method} {path}"
