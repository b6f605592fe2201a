"""How an option of the command line looks, and how the text behind it becomes a value.

Pure. Source: spec CLI-001..172.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_INT64_MAX = 2**63 - 1


class OptionError(Exception):
    """A value that an option cannot take; the message says which ones it can."""


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    group: str
    form: str
    """How the value looks in --help; empty for an option without value."""
    help: str
    convert: Callable[[str], object] = str
    is_repeatable: bool = False
    alias: str = ""


def boolean(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise OptionError("expects true, false, 1 or 0")
    return known[text.lower()]


def integer(low: int, high: int = _INT64_MAX) -> Callable[[str], int]:
    def convert(text: str) -> int:
        digits = text.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", digits) or not low <= int(digits) <= high:
            limit = f"from {low} to {high}" if high != _INT64_MAX else f"of at least {low}"
            raise OptionError(f"expects a whole number {limit}")
        return int(digits)

    return convert


def decimal(low: float, high: float) -> Callable[[str], float]:
    def convert(text: str) -> float:
        digits = text.strip()
        if (
            not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", digits)
            or not low <= float(digits) <= high
        ):
            raise OptionError(f"expects a number from {low:g} to {high:g}")
        return float(digits)

    return convert


def regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"is not a regular expression: {error}") from None
    return text


def not_empty(text: str) -> str:
    if not text.strip():
        raise OptionError("must not be empty")
    return text


def path(text: str) -> Path:
    return Path(not_empty(text))


port = integer(0, 65535)
