"""The options of tracing: --trace-config, and the older ones that it has replaced.

Pure. Source: spec CLI-090, CLI-160, TRC-001..003.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from serving.cli_forms import Option, OptionError
from serving.errors import ServingError
from serving.options import TraceSettings
from serving.tracing.settings import applied, read_levels, read_number

if TYPE_CHECKING:
    from serving.cli import Values

_KEYS = {
    ("", "rate"): "rate",
    ("", "level"): "levels",
    ("", "count"): "count",
    ("triton", "file"): "file",
    ("triton", "log-frequency"): "log_frequency",
}
_OLD = {
    "trace-file": "triton,file",
    "trace-level": "level",
    "trace-rate": "rate",
    "trace-count": "count",
    "trace-log-frequency": "triton,log-frequency",
}
_NAMES = {"rate": "trace_rate", "count": "trace_count", "log_frequency": "log_frequency"}


def trace_setting(text: str) -> tuple[str, object]:
    """`<key>=<value>` or `<mode>,<key>=<value>` -> the setting's field and its value."""
    head, equals, value = text.partition("=")
    mode, comma, key = head.partition(",")
    if not comma:
        mode, key = "", head
    if not equals:
        raise OptionError("expects <key>=<value> or triton,<key>=<value>")
    if (mode, key) == ("", "mode") or mode == "opentelemetry":
        if value == "triton" and not mode:
            return "mode", value
        raise OptionError("mode opentelemetry is not supported by this release of Conch yet")
    field = _KEYS.get((mode, key))
    if field is None:
        known = ", ".join(f"{mode},{key}" if mode else key for mode, key in _KEYS)
        raise OptionError(f"unknown key '{head}'; known are mode, {known}")
    return field, _value(field, value)


def _value(field: str, text: str) -> object:
    if field == "file":
        if not text:
            raise OptionError("the file must not be empty")
        return text
    try:
        return read_levels([text]) if field == "levels" else read_number(_NAMES[field], text)
    except ServingError as error:
        raise OptionError(error.message) from None


def _as_old(new: str) -> Callable[[str], tuple[str, object]]:
    return lambda text: trace_setting(f"{new}={text}")


TRACE_OPTIONS: Sequence[Option] = (
    Option(
        "trace-config",
        "Tracing",
        "[triton,]<key>=<value>",
        "rate (one request of so many; 1000), level (OFF, TIMESTAMPS, TENSORS; repeatable), count "
        "(-1: no limit), triton,file and triton,log-frequency (traces a file; 0). Repeatable.",
        trace_setting,
        is_repeatable=True,
    ),
)
OLD_TRACE_OPTIONS: Sequence[Option] = tuple(
    Option(
        old,
        "Deprecated",
        "<value>",
        f"is --trace-config {new}=<value>.",
        _as_old(new),
        is_repeatable=True,
    )
    for old, new in _OLD.items()
)


def trace_settings(values: Values, warnings: list[str]) -> TraceSettings:
    """What is given; --trace-config wins over an older option for the same."""
    given: dict[str, object] = {}
    levels: list[str] = []

    def take(pairs: Sequence[tuple[str, object]]) -> None:
        for field, value in pairs:
            if field == "levels":
                assert isinstance(value, tuple)
                levels.extend(value)
            elif field != "mode":
                given[field] = value

    new = values.all("trace-config")
    fields = {field for field, _ in new}
    for old, name in _OLD.items():
        pairs = values.all(old)
        if pairs:
            warnings.append(f"--{old} is deprecated: use --trace-config {name}=<value> instead")
            take([pair for pair in pairs if pair[0] not in fields])
    take(new)
    if levels:
        wanted = [level for level in dict.fromkeys(levels) if level != "OFF"]
        given["levels"] = tuple(wanted) or ("OFF",)
    return applied(TraceSettings(), given)
