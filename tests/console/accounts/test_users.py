"""Admins manage people; nobody can lock everybody out."""

from __future__ import annotations

from typing import Any

import pytest

from console.accounts.models import User
from console.core.models import AuditEntry
from console.core.roles import Role, role_of

pytestmark = pytest.mark.django_db
PAGE = "/settings/users/"


def fresh(user: Any) -> Any:
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize("who", ["stranger", "viewer", "operator"])
def test_only_admins_see_and_change_users(
    who: str, request: pytest.FixtureRequest, login: Any, admin: Any
) -> None:
    client = login(request.getfixturevalue(who))

    assert client.get(PAGE).status_code == 403
    assert client.post(PAGE, {}).status_code == 403
    assert client.post(f"{PAGE}{admin.pk}/role/", {"role": "viewer"}).status_code == 403
    assert client.post(f"{PAGE}{admin.pk}/active/", {"is_active": "0"}).status_code == 403
    assert role_of(fresh(admin)) is Role.ADMIN


def test_admin_creates_a_user_with_a_role(admin: Any, login: Any) -> None:
    fields = {"username": "nina", "role": "operator", "password": "a first long phrase"}

    answer = login(admin).post(PAGE, fields)

    assert answer["location"] == PAGE
    nina = User.objects.get(username="nina")
    assert role_of(nina) is Role.OPERATOR
    assert nina.check_password("a first long phrase")
    assert AuditEntry.objects.get().target == "nina"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"username": "ada", "role": "viewer", "password": "a first long phrase"},
            "already exists",
        ),
        (
            {"username": "ADA", "role": "viewer", "password": "a first long phrase"},
            "There is a user ada already",
        ),
        ({"username": "nina", "role": "viewer", "password": "short"}, "at least 10"),
        ({"username": "nina", "role": "king", "password": "a first long phrase"}, "valid choice"),
        ({}, "required"),
    ],
)
def test_bad_new_user_is_explained(
    admin: Any, login: Any, fields: dict[str, str], text: str
) -> None:
    answer = login(admin).post(PAGE, fields)

    assert answer.status_code == 400
    assert text in answer.content.decode()


def test_admin_changes_a_role(admin: Any, viewer: Any, login: Any) -> None:
    login(admin).post(f"{PAGE}{viewer.pk}/role/", {"role": "operator"})

    assert role_of(fresh(viewer)) is Role.OPERATOR
    assert AuditEntry.objects.get().detail == {"before": "viewer", "after": "operator"}


def test_role_can_be_taken_away(admin: Any, viewer: Any, login: Any) -> None:
    login(admin).post(f"{PAGE}{viewer.pk}/role/", {"role": ""})

    assert role_of(fresh(viewer)) is None


def test_last_admin_stays_admin(admin: Any, login: Any) -> None:
    answer = login(admin).post(f"{PAGE}{admin.pk}/role/", {"role": "viewer"}, follow=True)

    assert b"is the last admin" in answer.content
    assert role_of(fresh(admin)) is Role.ADMIN


def test_deactivated_user_loses_the_session_and_can_come_back(
    admin: Any, viewer: Any, login: Any
) -> None:
    client = login(viewer)
    login(admin).post(f"{PAGE}{viewer.pk}/active/", {"is_active": "0"})
    assert client.get("/account/").status_code == 302

    login(admin).post(f"{PAGE}{viewer.pk}/active/", {"is_active": "1"})
    assert fresh(viewer).is_active


def test_nobody_deactivates_the_own_account(admin: Any, login: Any) -> None:
    answer = login(admin).post(f"{PAGE}{admin.pk}/active/", {"is_active": "0"}, follow=True)

    assert b"cannot deactivate your own account" in answer.content
    assert fresh(admin).is_active


def test_unknown_user_is_404(admin: Any, login: Any) -> None:
    answer = login(admin).post(f"{PAGE}999/role/", {"role": "viewer"})

    assert answer.status_code == 404
    assert "There is no user 999." in answer.content.decode()
