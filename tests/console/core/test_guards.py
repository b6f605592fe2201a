"""Roles, guards of views, errors of the REST API."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.test import RequestFactory
from rest_framework import exceptions
from rest_framework.test import APIRequestFactory

from console.core.exceptions import api_exception_handler
from console.core.permissions import RoleAdmin, RoleOperator, RoleViewer, require_role
from console.core.roles import Role, has_role, role_of, set_role
from serving.errors import NotFoundError
from workers.client import WorkerError

pytestmark = pytest.mark.django_db


@require_role("operator")
def guarded(request: Any) -> HttpResponse:
    return HttpResponse("done")


def call(user: Any) -> Any:
    request = RequestFactory().get("/somewhere/?a=1")
    request.user = user
    return guarded(request)


def test_anonymous_is_sent_to_login_and_back() -> None:
    assert call(AnonymousUser())["location"] == "/login/?next=/somewhere/%3Fa%3D1"


def test_too_little_right_is_refused(viewer: Any, stranger: Any) -> None:
    for user in (viewer, stranger):
        with pytest.raises(PermissionDenied, match="needs the role operator"):
            call(user)


def test_enough_right_passes(operator: Any, admin: Any) -> None:
    assert call(operator).content == b"done"
    assert call(admin).content == b"done"


def test_superuser_is_an_admin_and_the_deactivated_are_nothing(make_user: Any) -> None:
    root = make_user("root")
    root.is_superuser = True
    assert role_of(root) is Role.ADMIN

    root.is_active = False
    assert role_of(root) is None


def test_role_replaces_the_one_before(viewer: Any) -> None:
    set_role(viewer, Role.ADMIN)
    assert has_role(viewer, "admin")

    set_role(viewer, None)
    assert not has_role(viewer, "viewer")


class Token:
    def __init__(self, scope: str) -> None:
        self.scope = scope


@pytest.mark.parametrize(
    ("permission", "scope", "allowed"),
    [
        (RoleViewer, "read", True),
        (RoleViewer, "infer", True),
        (RoleOperator, "read", False),
        (RoleOperator, "infer", False),
        (RoleOperator, "deploy", True),
        (RoleAdmin, "deploy", True),
        (RoleAdmin, "read", False),
        (RoleAdmin, None, True),
    ],
)
def test_scope_of_a_token_narrows_its_owner(
    admin: Any, permission: Any, scope: str | None, allowed: bool
) -> None:
    request = APIRequestFactory().get("/")
    request.user = admin
    request.auth = Token(scope) if scope else None

    assert permission().has_permission(request, None) is allowed


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundError("no model 'x'"), 404, "not_found"),
        (WorkerError("worker 'w' does not answer"), 503, "worker_unavailable"),
        (exceptions.NotAuthenticated(), 401, "not_authenticated"),
        (exceptions.ValidationError({"range": ["bad"]}), 400, "invalid"),
        (PermissionDenied("not you"), 403, "permission_denied"),
    ],
)
def test_every_api_error_has_one_shape(error: Exception, status: int, code: str) -> None:
    response = api_exception_handler(error, {})

    assert response is not None
    assert response.data["error"]["code"] == code
    assert response.data["error"]["message"]
    assert set(response.data["error"]) == {"code", "message", "fields"}


def test_who_sends_no_token_learns_how_to_send_one() -> None:
    response = api_exception_handler(exceptions.NotAuthenticated(), {})

    assert response is not None
    assert "send `Authorization: Bearer" in response.data["error"]["message"]


def test_bug_is_left_to_become_a_500() -> None:
    assert api_exception_handler(RuntimeError("bug"), {}) is None
