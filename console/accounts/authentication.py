"""Authenticates REST requests by API token; `Bearer` and `Token` are both understood.

Unlike knox's own class it never deletes rows while it reads: an expired token is refused and stays
in its owner's list as expired. `verify_token` is what the gateway uses too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from hmac import compare_digest
from typing import Any

from django.utils import timezone
from knox.crypto import hash_token
from knox.settings import CONSTANTS
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.request import Request

from console.accounts.models import ApiToken

PREFIXES = frozenset({b"bearer", b"token"})
# How exact "last used" is: one write a token and minute at most.
LAST_USED_STEP = timedelta(minutes=1)


class ApiTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, ApiToken] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() not in PREFIXES:
            return None
        if len(words) != 2:
            raise exceptions.AuthenticationFailed(
                "The Authorization header must be `Bearer <token>`."
            )
        token = verify_token(words[1].decode("latin-1"))
        if token is None:
            raise exceptions.AuthenticationFailed(
                "The API token is unknown, revoked or expired. Create one under API tokens."
            )
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="conch"'


def verify_token(text: str) -> ApiToken | None:
    """The valid token of an active person, or None. One or two database queries."""
    digest = hash_token(text)
    rows: Iterable[ApiToken] = ApiToken.objects.filter(
        token_key=text[: CONSTANTS.TOKEN_KEY_LENGTH], user__is_active=True
    ).select_related("user")
    for row in rows:
        if compare_digest(digest, row.digest) and not row.is_expired:
            _note_use(row)
            return row
    return None


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_STEP:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
