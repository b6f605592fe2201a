"""Reads typed values from environment variables, for `console/settings.py` alone.

Every reader raises `ImproperlyConfigured` with the variable's name and the accepted form, so that a
typing error stops the start instead of meaning something else.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off", ""})


def env_text(name: str, default: str = "") -> str:
    return os.environ.get(name, default).strip()


def env_bool(name: str, default: bool = False) -> bool:
    text = os.environ.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ImproperlyConfigured(f"{name} is {text!r}; write true or false")


def env_int(name: str, default: int, *, minimum: int = 0) -> int:
    text = env_text(name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {text!r}; write a whole number") from None
    if value < minimum:
        raise ImproperlyConfigured(f"{name} is {value}; the least allowed is {minimum}")
    return value


def env_list(name: str, default: str = "") -> list[str]:
    """Comma-separated words."""
    return [word for word in (part.strip() for part in env_text(name, default).split(",")) if word]


def env_path(name: str, default: Path) -> Path:
    text = env_text(name)
    return Path(text).expanduser().absolute() if text else default


def env_secret(name: str) -> str | None:
    """`NAME`, or the content of the file that `NAME_FILE` names (a container secret)."""
    value = os.environ.get(name)
    if value:
        return value
    file_name = os.environ.get(f"{name}_FILE")
    if not file_name:
        return None
    try:
        return Path(file_name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE cannot be read: {error}") from error


def kept_secret(path: Path) -> str:
    """A random secret made on first use and kept in `path`, readable by its owner only."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        # link, not rename: of two processes that start together the first one's secret stays.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text(encoding="utf-8").strip()
