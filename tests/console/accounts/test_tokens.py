"""API tokens: shown once, bounded by role and scope, ended by revoking, expiry or deactivation."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts import services
from console.accounts.models import ApiToken

pytestmark = pytest.mark.django_db
PAGE = "/settings/tokens/"
READING = "/api/v1/metrics/series"


def call(text: str, scheme: str = "Bearer") -> int:
    return Client().get(READING, headers={"authorization": f"{scheme} {text}"}).status_code


def make(user: Any, scope: str = "read", days: int | None = None) -> tuple[ApiToken, str]:
    return services.create_token(actor=user, name="job", scope=scope, days=days)


def test_new_token_is_shown_once_and_works(operator: Any, login: Any) -> None:
    client = login(operator)

    answer = client.post(PAGE, {"name": "ci", "scope": "deploy", "days": "90"})

    assert answer.status_code == 201
    found = re.search(r'value="(conch_[0-9a-f]+)"', answer.content.decode())
    assert found
    assert call(found[1]) == 200
    assert found[1] not in client.get(PAGE).content.decode()
    token = ApiToken.objects.get()
    assert token.digest != found[1]
    assert token.expiry is not None
    assert "no-store" in answer["cache-control"]


def test_both_schemes_are_understood(viewer: Any) -> None:
    _, text = make(viewer)

    assert call(text, "Bearer") == 200
    assert call(text, "Token") == 200


@pytest.mark.parametrize("header", ["Bearer", "Bearer a b", "Bearer wrong", "Bearer conch_00"])
def test_bad_token_is_401_with_a_sentence(db: None, header: str) -> None:
    answer = Client().get(READING, headers={"authorization": header})

    assert answer.status_code == 401
    assert answer["www-authenticate"].startswith("Bearer")
    assert answer.json()["error"]["message"]


def test_use_is_noted_at_most_once_a_minute(viewer: Any) -> None:
    token, text = make(viewer)
    call(text)
    first = ApiToken.objects.get().last_used_at
    call(text)

    assert first is not None
    assert ApiToken.objects.get().last_used_at == first


def test_expired_token_is_refused_and_stays_in_the_list(viewer: Any, login: Any) -> None:
    token, text = make(viewer, days=1)
    ApiToken.objects.update(expiry=timezone.now() - timedelta(minutes=1))

    assert call(text) == 401
    assert b"Expired" in login(viewer).get(PAGE).content


def test_token_of_a_deactivated_person_is_refused(viewer: Any) -> None:
    _, text = make(viewer)
    viewer.is_active = False
    viewer.save()

    assert call(text) == 401


def test_viewer_cannot_make_tokens_that_do_more_than_read(viewer: Any, login: Any) -> None:
    answer = login(viewer).post(PAGE, {"name": "x", "scope": "deploy", "days": "90"})

    assert answer.status_code == 400
    assert not ApiToken.objects.exists()


def test_person_revokes_own_tokens_only(viewer: Any, operator: Any, login: Any) -> None:
    token, text = make(operator)

    assert login(viewer).post(f"{PAGE}{token.token_key}/revoke/").status_code == 404
    assert call(text) == 200

    assert login(operator).post(f"{PAGE}{token.token_key}/revoke/").status_code == 302
    assert call(text) == 401


def test_page_asks_before_it_revokes(operator: Any, login: Any) -> None:
    token, _ = make(operator)

    page = login(operator).get(PAGE).content.decode()

    dialog = page.partition(f'id="revoke-{token.token_key}"')[2].partition("</dialog>")[0]
    assert f"Revoke {token.name}?" in dialog
    assert "It has never been used." in dialog
    assert f'action="{PAGE}{token.token_key}/revoke/"' in dialog


def test_admin_sees_and_revokes_the_tokens_of_others(admin: Any, operator: Any, login: Any) -> None:
    token, text = make(operator)
    client = login(admin)

    assert b"oscar" in client.get(PAGE).content
    client.post(f"{PAGE}{token.token_key}/revoke/")

    assert call(text) == 401


def test_stranger_has_no_tokens(stranger: Any, login: Any) -> None:
    assert login(stranger).get(PAGE).status_code == 403
    assert login(stranger).post(PAGE, {"name": "x", "scope": "read"}).status_code == 403
