"""Whether models may bring native code that the server runs in its own process.

What lies in a --backend-directory was put there by whoever runs the server; what a model names or
brings, by whoever may publish models. `python -m serving` allows it as Triton does, workers of the
console do not, unless CONCH_ALLOW_NATIVE_CODE says so. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from serving.errors import InvalidArgumentError

KEY = "allow-native-code"
_VALUES = {"true": True, "1": True, "false": False, "0": False}


def is_allowed(backend_config: Mapping[str, str]) -> bool:
    """By --backend-config, for one backend or for all. Raises: InvalidArgumentError."""
    text = backend_config.get(KEY, "true")
    value = _VALUES.get(text.lower())
    if value is None:
        raise InvalidArgumentError(f"backend config '{KEY}' is '{text}': it must be true or false")
    return value
