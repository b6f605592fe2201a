"""Slows down guessing of passwords: too many failures for one name from one address must wait.

Counts live in this process's cache; a second web process counts for itself.
"""

from __future__ import annotations

import hashlib

from django.core.cache import cache
from django.http import HttpRequest

LIMIT = 10
WINDOW_SECONDS = 300


def _key(request: HttpRequest, name: str) -> str:
    text = f"{request.META.get('REMOTE_ADDR', '')} {name.lower()}"
    return "login-" + hashlib.sha256(text.encode()).hexdigest()


def is_blocked(request: HttpRequest, name: str) -> bool:
    return int(cache.get(_key(request, name), 0)) >= LIMIT


def note_failure(request: HttpRequest, name: str) -> None:
    key = _key(request, name)
    cache.add(key, 0, WINDOW_SECONDS)
    cache.incr(key)


def forget_failures(request: HttpRequest, name: str) -> None:
    cache.delete(_key(request, name))
