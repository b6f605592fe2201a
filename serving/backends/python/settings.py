"""Settings of Triton's Python backend in the backend config (PB-062). Pure; any thread.

Tensors cross in memory that grows as needed and has no name, so Triton's sizes and prefix have
nothing to do; a value that Triton would refuse is refused nevertheless.
"""

from __future__ import annotations

from collections.abc import Mapping

from serving.errors import InvalidArgumentError

_LEAST = {
    "shm-default-byte-size": 1 << 20,
    "shm-growth-byte-size": 1,
    "stub-timeout-seconds": 1,
    "thread-pool-size": 1,
    "environment-keep-days": 1,
}
_KEEP_DAYS = "30"


def check(backend_config: Mapping[str, str]) -> None:
    """Raises: InvalidArgumentError naming key and value."""
    for key, least in _LEAST.items():
        text = backend_config.get(key)
        if text is not None and not (text.isascii() and text.isdigit() and int(text) >= least):
            raise InvalidArgumentError(
                f"the backend config '{key}' is '{text}': it must be a whole number of {least} or "
                "more"
            )


def keep_days(backend_config: Mapping[str, str]) -> int:
    """How long an environment stays that no model uses."""
    return int(backend_config.get("environment-keep-days", _KEEP_DAYS))
