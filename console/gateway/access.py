"""Who calls, and whether they may: API token or the session cookie of the console.

Answers are remembered for a few seconds so that inference does not ask the database each time; a
revoked token or role ends within that time. Runs on the event loop; the database is asked in a
thread. A cookie alone is not enough for a POST: the request must also come from a page of ours.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import Error as DatabaseError
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from console.accounts.authentication import verify_token
from console.core.roles import Role, Scope, refusal, role_of
from console.gateway.routes import Target

logger = logging.getLogger(__name__)

REMEMBERED_S = 5.0
MOST_REMEMBERED = 1024

Headers = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Caller:
    role: Role | None
    scope: Scope | None = None
    """None: a session, which may do all that its role may."""
    refusal: str = ""
    """Why too little role is too little, for the error."""


@dataclass(frozen=True, slots=True)
class Denied:
    status: int
    message: str


class Access:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[float, Caller | None]] = OrderedDict()

    def forget(self) -> None:
        self._known.clear()

    async def check(self, method: str, headers: Headers, target: Target) -> Denied | None:
        """None: the caller may."""
        try:
            return await self._check(method, headers, target)
        except DatabaseError as error:
            logger.warning("gateway: the database does not answer: %s", error)
            return Denied(503, "The console's database cannot be reached, so nobody is known here")

    async def _check(self, method: str, headers: Headers, target: Target) -> Denied | None:
        authorization = headers.get(b"authorization")
        if authorization is not None:
            words = authorization.split()
            if len(words) != 2 or words[0].lower() not in (b"bearer", b"token"):
                return Denied(401, "The Authorization header must be `Bearer <API token>`")
            caller = await self._remember("token", words[1].decode("latin-1"))
            if caller is None:
                return Denied(401, "The API token is unknown, revoked or expired")
            return _judge(caller, target)
        session_key = _session_key(headers.get(b"cookie"))
        if not session_key:
            return Denied(401, "An API token is needed: send `Authorization: Bearer <API token>`")
        denied = _check_origin(method, headers)
        if denied:
            return denied
        caller = await self._remember("session", session_key)
        if caller is None:
            return Denied(401, "The session has ended: log in again")
        return _judge(caller, target)

    async def _remember(self, kind: str, secret: str) -> Caller | None:
        key = (kind, secret)
        now = time.monotonic()
        found = self._known.get(key)
        if found is not None and found[0] > now:
            return found[1]
        caller: Caller | None = await (_by_token if kind == "token" else _by_session)(secret)
        self._known[key] = (now + REMEMBERED_S, caller)
        self._known.move_to_end(key)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return caller


def _judge(caller: Caller, target: Target) -> Denied | None:
    if caller.role is None or caller.role.rank < target.role.rank:
        return Denied(403, caller.refusal)
    if target.is_inference and caller.scope is Scope.READ:
        return Denied(403, "The token's scope is read; inference needs a token with scope infer")
    return None


@database_sync_to_async  # type: ignore[untyped-decorator]
def _by_token(text: str) -> Caller | None:
    token = verify_token(text)
    if token is None:
        return None
    needed = refusal(token.user, Role.OPERATOR)
    return Caller(role_of(token.user), Scope(token.scope), needed)


@database_sync_to_async  # type: ignore[untyped-decorator]
def _by_session(session_key: str) -> Caller | None:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    if not user.is_authenticated:
        return None
    return Caller(role_of(user), None, refusal(user, Role.OPERATOR))


def _session_key(cookie: bytes | None) -> str:
    if not cookie:
        return ""
    try:
        jar = SimpleCookie(cookie.decode("latin-1"))
    except CookieError:
        return ""
    found = jar.get(settings.SESSION_COOKIE_NAME)
    return found.value if found else ""


def _check_origin(method: str, headers: Headers) -> Denied | None:
    """A browser sends the cookie along for any page; only ours may use it."""
    host = headers.get(b"host", b"").decode("latin-1")
    allowed = settings.ALLOWED_HOSTS or ["localhost", "127.0.0.1", "[::1]"]
    if not validate_host(split_domain_port(host)[0], allowed):
        return Denied(400, f"The host {host!r} is not one of CONCH_ALLOWED_HOSTS")
    if method == "GET":
        return None
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin in settings.CSRF_TRUSTED_ORIGINS or urlsplit(origin).netloc == host:
        return None
    return Denied(
        403, "A session may send inference requests only from the console's own pages; use a token"
    )
