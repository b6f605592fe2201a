"""Logging in and out, the own account, and guessing of passwords."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from console.core.models import AuditEntry
from tests.console.conftest import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_old_failures() -> None:
    cache.clear()


def log_in(client: Client, name: str, password: str, **extra: Any) -> Any:
    return client.post("/login/", {"username": name, "password": password, **extra})


def test_right_password_leads_to_the_page_that_was_asked_for(viewer: Any) -> None:
    answer = log_in(Client(), "vera", PASSWORD, next="/workers/")

    assert answer.status_code == 302
    assert answer["location"] == "/workers/"
    assert AuditEntry.objects.get().action == "log in"


def test_wrong_password_is_explained(viewer: Any) -> None:
    answer = log_in(Client(), "vera", "wrong")

    assert answer.status_code == 200
    assert b"Name or password is wrong" in answer.content


def test_login_does_not_lead_to_another_site(viewer: Any) -> None:
    answer = log_in(Client(), "vera", PASSWORD, next="https://evil.example/")

    assert answer["location"] == "/"


def test_guessing_is_stopped_even_with_the_right_password(viewer: Any) -> None:
    client = Client()
    for _ in range(10):
        log_in(client, "vera", "wrong")

    answer = log_in(client, "vera", PASSWORD)

    assert b"Too many wrong passwords" in answer.content


def test_deactivated_person_cannot_log_in(viewer: Any) -> None:
    viewer.is_active = False
    viewer.save()

    assert log_in(Client(), "vera", PASSWORD).status_code == 200


def test_logout_takes_a_post(viewer: Any, login: Any) -> None:
    client = login(viewer)

    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert client.get("/account/")["location"].startswith("/login/")


def test_theme_is_kept_and_set_before_the_first_paint(viewer: Any, login: Any) -> None:
    client = login(viewer)

    client.post("/account/theme/", {"theme": "dark"})

    page = client.get("/account/").content.decode()
    assert 'data-theme-choice="dark"' in page
    assert page.index("js/theme.js") < page.index("css/console.css")


def test_unknown_theme_is_refused(viewer: Any, login: Any) -> None:
    assert login(viewer).post("/account/theme/", {"theme": "pink"}).status_code == 400


def test_password_change_keeps_the_session_and_ends_others(viewer: Any, login: Any) -> None:
    here, elsewhere = login(viewer), login(viewer)
    new = "a longer phrase of mine"
    fields = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}

    assert here.post("/account/password/", fields).status_code == 302

    assert here.get("/account/").status_code == 200
    assert elsewhere.get("/account/").status_code == 302


def test_weak_password_is_refused_beside_its_field(viewer: Any, login: Any) -> None:
    fields = {"old_password": PASSWORD, "new_password1": "12345", "new_password2": "12345"}

    answer = login(viewer).post("/account/password/", fields)

    assert answer.status_code == 400
    assert b"at least 10 characters" in answer.content


def test_anonymous_is_sent_to_the_login_page(db: None) -> None:
    for path in ("/", "/account/", "/settings/tokens/", "/settings/users/"):
        answer = Client().get(path)
        assert answer.status_code == 302
        assert answer["location"].startswith("/login/?next=")


def test_stranger_sees_the_account_page_which_says_what_is_missing(
    stranger: Any, login: Any
) -> None:
    client = login(stranger)

    assert client.get("/")["location"] == "/account/"
    assert b"No role" in client.get("/account/").content
