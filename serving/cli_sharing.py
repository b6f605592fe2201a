"""The options of what all models share: the response cache and the resources of the rate limiter.

Pure functions. Source: spec CLI-120, CLI-130, SCH-110..112, SCH-120..122.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from serving.cache.settings import combined, parse_setting
from serving.cli_forms import Option, OptionError, integer, path
from serving.errors import InvalidArgumentError
from serving.options import CacheOptions
from serving.rate_limiter import Key, limits_of, parse_mode, parse_resource

if TYPE_CHECKING:
    from serving.cli import Values


def cache_setting(text: str) -> tuple[str, str, str]:
    try:
        return parse_setting(text)
    except InvalidArgumentError as error:
        raise OptionError(error.message) from None


def rate_limit_mode(text: str) -> bool:
    try:
        return parse_mode(text)
    except InvalidArgumentError as error:
        raise OptionError(error.message) from None


def rate_limit_resource(text: str) -> tuple[Key, int]:
    try:
        return parse_resource(text)
    except InvalidArgumentError as error:
        raise OptionError(error.message) from None


SHARING_OPTIONS: Sequence[Option] = (
    Option(
        "cache-config",
        "Response cache",
        "<cache>,<key>=<value>",
        "local,size=<bytes>, redis,host=<name> (and port, password, ...), or a cache of your own. "
        "For models with response_cache. Repeatable, for one cache.",
        cache_setting,
        is_repeatable=True,
    ),
    Option(
        "cache-directory",
        "Response cache",
        "<directory>",
        "Where more caches are, as <cache>/cache.py.",
        path,
    ),
    Option(
        "rate-limit",
        "Rate limiter",
        "<mode>",
        "off, or execution_count: instances start when their resources are free. Default: off.",
        rate_limit_mode,
    ),
    Option(
        "rate-limit-resource",
        "Rate limiter",
        "<name>:<count>[:<device>]",
        "How much there is of a resource. Default: the largest demand of an instance. Repeatable.",
        rate_limit_resource,
        is_repeatable=True,
    ),
)

OLD_CACHE_OPTIONS: Sequence[Option] = (
    Option(
        "response-cache-byte-size",
        "Deprecated",
        "<bytes>",
        "is --cache-config=local,size=<bytes>.",
        integer(0, 10**15 - 1),
    ),
)


def cache_options(values: Values, warnings: list[str]) -> CacheOptions | None:
    """Raises InvalidArgumentError."""
    settings = values.all("cache-config")
    directory = values.get("cache-directory", None)
    if values.has("response-cache-byte-size"):
        size = values.get("response-cache-byte-size", 0)
        warnings.append(
            "--response-cache-byte-size is deprecated: use "
            f"--cache-config=local,size={size} instead"
        )
        if settings:
            raise InvalidArgumentError(
                "--response-cache-byte-size and --cache-config exclude each other; use the latter"
            )
        settings = [("local", "size", str(size))] if size else []
    return combined(settings, directory)


def resource_limits(values: Values, warnings: list[str]) -> Mapping[Key, int]:
    """Raises InvalidArgumentError."""
    limits = limits_of(values.all("rate-limit-resource"))
    if limits and not values.get("rate-limit", False):
        warnings.append("--rate-limit-resource has no effect without --rate-limit=execution_count")
    return limits
