"""What is traced: the settings of the server, and for single models those that differ.

Pure. Source: spec HTTP-080..083, GRPC-015, TRC-001, TRC-002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from serving.errors import InvalidArgumentError, UnsupportedError
from serving.options import TraceSettings

LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")
_UINT32_MAX = 2**32 - 1
_NUMBERS = {"trace_rate": "rate", "trace_count": "count", "log_frequency": "log_frequency"}


@dataclass(frozen=True, slots=True)
class TraceChange:
    """Settings to set, and names of fields to clear, which then follow what is above them."""

    values: dict[str, object] = field(default_factory=dict)
    cleared: frozenset[str] = frozenset()

    def merged(self, earlier: Mapping[str, object]) -> dict[str, object]:
        kept = {key: value for key, value in earlier.items() if key not in self.cleared}
        return kept | self.values


def read_change(wanted: Mapping[str, object]) -> TraceChange:
    """Null clears a setting, names that nobody knows are passed over.

    Raises: InvalidArgumentError; UnsupportedError for the file, which no caller may choose.
    """
    values: dict[str, object] = {}
    cleared: set[str] = set()
    for name, value in wanted.items():
        if name == "trace_file":
            raise UnsupportedError(
                "trace file location can not be updated through network protocol; start the server "
                "with --trace-config triton,file=<path>"
            )
        target = "levels" if name == "trace_level" else _NUMBERS.get(name)
        if target is None:
            continue
        if value is None:
            cleared.add(target)
        elif name == "trace_level":
            values[target] = read_levels(value)
        else:
            values[target] = read_number(name, value)
    return TraceChange(values, frozenset(cleared))


def applied(settings: TraceSettings, values: Mapping[str, object]) -> TraceSettings:
    return replace(settings, **values)  # type: ignore[arg-type]


def read_levels(value: object) -> tuple[str, ...]:
    """Raises InvalidArgumentError."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidArgumentError(f"Unable to parse 'trace_level': expected a list, got {value!r}")
    for level in value:
        if level not in LEVELS:
            raise InvalidArgumentError(
                f"Unable to parse 'trace_level': {level!r} is none of {', '.join(LEVELS)}"
            )
    levels = tuple(dict.fromkeys(value)) or ("OFF",)
    if "OFF" in levels and len(levels) > 1:
        raise InvalidArgumentError("Expect only one trace level 'OFF' is specified")
    return levels


def read_number(name: str, value: object) -> int:
    """Raises InvalidArgumentError."""
    if not isinstance(value, str):
        raise InvalidArgumentError(
            f"Unable to parse '{name}': expected a number as a string, got {value!r}"
        )
    digits = value.strip().removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        raise InvalidArgumentError(f"Unable to parse '{name}', got: {value[:40]}")
    number = int(value[:40])
    low, high = (-1, 2**31 - 1) if name == "trace_count" else (0, _UINT32_MAX)
    if not low <= number <= high:
        raise InvalidArgumentError(
            f"Unable to parse '{name}', value is out of range [ {low}, {high} ], got: {value[:40]}"
        )
    return number
