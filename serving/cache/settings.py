"""--cache-config, and the same in an environment variable, as options. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from serving.errors import InvalidArgumentError
from serving.options import CacheOptions


def parse_setting(text: str) -> tuple[str, str, str]:
    """`<cache>,<key>=<value>` -> (cache, key, value). Raises InvalidArgumentError."""
    name, _, setting = text.partition(",")
    key, equals, value = setting.partition("=")
    parts = name.strip(), key.strip(), value.strip()
    if not equals or not all(parts):
        raise InvalidArgumentError(
            "expects <cache>,<key>=<value>, as in local,size=104857600 or redis,host=127.0.0.1"
        )
    return parts


def combined(
    settings: Iterable[tuple[str, str, str]], directory: Path | None = None
) -> CacheOptions | None:
    """None: no cache. Of one setting given twice, the last value holds.

    Raises: InvalidArgumentError for settings of two caches.
    """
    found: dict[str, dict[str, str]] = {}
    for name, key, value in settings:
        found.setdefault(name, {})[key] = value
    if len(found) > 1:
        raise InvalidArgumentError(
            f"settings of {len(found)} caches: {', '.join(found)}; only a single response cache "
            "is supported, configure one of them"
        )
    for name, values in found.items():
        return CacheOptions(name, values, directory)
    return None
