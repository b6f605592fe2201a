"""The options of tracing: --trace-config, and the older ones that it has replaced.

Pure. Source: spec CLI-090, CLI-160, TRC-001..003, TRC-008.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from serving.cli_forms import Option, OptionError, integer
from serving.errors import ServingError
from serving.options import TelemetryOptions, TraceSettings
from serving.tracing.settings import read_levels, read_number

if TYPE_CHECKING:
    from serving.cli import Values

TracePair = tuple[str, object]
"""A setting's field and its value."""
TELEMETRY = "opentelemetry"
_KEYS = {
    ("", "rate"): "rate",
    ("", "level"): "levels",
    ("", "count"): "count",
    ("", "mode"): "mode",
    ("triton", "file"): "file",
    ("triton", "log-frequency"): "log_frequency",
    (TELEMETRY, "url"): "url",
    (TELEMETRY, "resource"): "resource",
    (TELEMETRY, "bsp_max_queue_size"): "max_queue_size",
    (TELEMETRY, "bsp_schedule_delay"): "schedule_delay_ms",
    (TELEMETRY, "bsp_max_export_batch_size"): "max_export_batch_size",
}
_TELEMETRY_NUMBERS = ("max_queue_size", "schedule_delay_ms", "max_export_batch_size")
_OLD = {
    "trace-file": "triton,file",
    "trace-level": "level",
    "trace-rate": "rate",
    "trace-count": "count",
    "trace-log-frequency": "triton,log-frequency",
}
_NAMES = {"rate": "trace_rate", "count": "trace_count", "log_frequency": "log_frequency"}


def trace_setting(text: str) -> TracePair:
    """`<key>=<value>` or `<mode>,<key>=<value>` -> the setting's field and its value."""
    head, equals, value = text.partition("=")
    mode, comma, key = head.partition(",")
    if not comma:
        mode, key = "", head
    if not equals:
        raise OptionError("expects <key>=<value> or <mode>,<key>=<value>")
    field = _KEYS.get((mode, key))
    if field is None:
        known = ", ".join(f"{mode},{key}" if mode else key for mode, key in _KEYS)
        raise OptionError(f"unknown key '{head}'; known are {known}")
    return field, _value(field, value)


def _value(field: str, text: str) -> object:
    if field == "mode" and text not in ("triton", TELEMETRY):
        raise OptionError(f"expects mode=triton or mode={TELEMETRY}")
    if field == "resource":
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise OptionError("expects resource=<key>=<value>, as in resource=service.name=vision")
        return key.strip(), value.strip()
    if field == "url" and not text.startswith(("http://", "https://")):
        raise OptionError("the url of a collector begins with http:// or https://")
    if field in _TELEMETRY_NUMBERS:
        return integer(1, 2**31 - 1)(text)
    if field in ("file", "url", "mode"):
        if not text:
            raise OptionError(f"the {field} must not be empty")
        return text
    try:
        return read_levels([text]) if field == "levels" else read_number(_NAMES[field], text)
    except ServingError as error:
        raise OptionError(error.message) from None


def _as_old(new: str) -> Callable[[str], TracePair]:
    return lambda text: trace_setting(f"{new}={text}")


TRACE_OPTIONS: Sequence[Option] = (
    Option(
        "trace-config",
        "Tracing",
        "[<mode>,]<key>=<value>",
        "rate (one request of so many; 1000), level (OFF, TIMESTAMPS, TENSORS; repeatable), count "
        "(-1: no limit), mode (triton or opentelemetry), triton,file, triton,log-frequency (traces "
        "a file; 0), opentelemetry,url, opentelemetry,resource=<key>=<value>, and "
        "opentelemetry,bsp_max_queue_size, bsp_schedule_delay (ms), bsp_max_export_batch_size. "
        "Repeatable.",
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
    """What is given; --trace-config wins over an older option for the same.

    Raises OptionError where settings do not go together.
    """
    new = values.all("trace-config")
    fields = {field for field, _ in new}
    old: list[TracePair] = []
    for name, replacement in _OLD.items():
        pairs = values.all(name)
        if pairs:
            warnings.append(
                f"--{name} is deprecated: use --trace-config {replacement}=<value> instead"
            )
            old += [pair for pair in pairs if pair[0] not in fields]
    return combined([*old, *new], warnings)


def combined(pairs: Sequence[TracePair], warnings: list[str]) -> TraceSettings:
    """Raises OptionError where settings do not go together."""
    given: dict[str, Any] = {}
    levels: list[str] = []
    resource: list[tuple[str, str]] = []
    for field, value in pairs:
        if field == "levels":
            levels += cast("tuple[str, ...]", value)
        elif field == "resource":
            resource.append(cast("tuple[str, str]", value))
        else:
            given[field] = value
    telemetry = {
        field: given.pop(field) for field in ("url", *_TELEMETRY_NUMBERS) if field in given
    }
    if resource:
        telemetry["resource"] = tuple(resource)
    if levels:
        wanted = [level for level in dict.fromkeys(levels) if level != "OFF"]
        given["levels"] = tuple(wanted) or ("OFF",)
    if given.pop("mode", "triton") == TELEMETRY:
        given["telemetry"] = _telemetry(telemetry)
        if "TENSORS" in given.get("levels", ()):
            warnings.append(f"trace level TENSORS has no effect in mode {TELEMETRY}")
    elif telemetry:
        warnings.append(f"--trace-config {TELEMETRY},... has no effect without mode={TELEMETRY}")
    return TraceSettings(**given)


def _telemetry(given: Mapping[str, Any]) -> TelemetryOptions:
    options = TelemetryOptions(**given)
    if options.max_export_batch_size > options.max_queue_size:
        raise OptionError(
            "bsp_max_export_batch_size must not be larger than bsp_max_queue_size, which is "
            f"{options.max_queue_size}"
        )
    return options
