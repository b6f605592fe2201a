"""The logging extension: the settings as clients see them, and a checked change of some.

Pure: what applies a change is elsewhere. Source: spec HTTP-090, HTTP-091, GRPC-016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serving.errors import InvalidArgumentError, UnsupportedError
from serving.logging_setup import LogOptions

Setting = bool | int | str

_SWITCHES = {"log_info": "info", "log_warning": "warning", "log_error": "error"}
_FORMATS = ("default", "ISO8601")
_MAX_VERBOSE = 2**32 - 1


def describe(options: LogOptions) -> dict[str, Setting]:
    return {
        "log_file": options.file,
        "log_info": options.info,
        "log_warning": options.warning,
        "log_error": options.error,
        "log_verbose_level": options.verbose,
        "log_format": options.format,
    }


def change(options: LogOptions, wanted: Mapping[str, object]) -> LogOptions:
    """The options with `wanted` applied; null leaves a setting as it is, unknown names too.

    Raises: InvalidArgumentError, UnsupportedError (a file).
    """
    for name, value in wanted.items():
        if value is None:
            continue
        if name == "log_file":
            raise UnsupportedError("log_file cannot be changed while the server runs")
        if name in _SWITCHES:
            if not isinstance(value, bool):
                raise InvalidArgumentError(f"setting '{name}' must be a bool, got {value!r}")
            switch: dict[str, Any] = {_SWITCHES[name]: value}
            options = replace(options, **switch)
        elif name == "log_verbose_level":
            options = replace(options, verbose=_verbose(value))
        elif name == "log_format":
            options = replace(options, format=_format(value))
    return options


def _verbose(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_VERBOSE:
        raise InvalidArgumentError(
            f"setting 'log_verbose_level' must be an unsigned 32-bit integer, got {value!r}"
        )
    return value


def _format(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"setting 'log_format' must be a string, got {value!r}")
    if value not in _FORMATS:
        raise InvalidArgumentError(
            f"setting 'log_format' must be one of {', '.join(_FORMATS)}; got '{value[:40]}'"
        )
    return value
