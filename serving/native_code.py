"""Whether models may bring native code that the server runs in its own process, and whether a
library is whole.

What lies in a --backend-directory was put there by whoever runs the server; what a model names or
brings, by whoever may publish models. `python -m serving` allows it as Triton does, workers of the
console do not, unless CONCH_ALLOW_NATIVE_CODE says so. Pure but for reading the
head of a file; any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from serving.errors import InvalidArgumentError, ModelLoadError, UnsupportedError

KEY = "allow-native-code"
_VALUES = {"true": True, "1": True, "false": False, "0": False}


def is_allowed(backend_config: Mapping[str, str]) -> bool:
    """By --backend-config, for one backend or for all. Raises: InvalidArgumentError."""
    text = backend_config.get(KEY, "true")
    value = _VALUES.get(text.lower())
    if value is None:
        raise InvalidArgumentError(f"backend config '{KEY}' is '{text}': it must be true or false")
    return value


def require_allowed(backend: str, what: str, backend_config: Mapping[str, str]) -> None:
    """`what`: of a model, to be opened by the backend. Raises: UnsupportedError."""
    if not is_allowed(backend_config):
        raise UnsupportedError(
            f"{what} runs native code of the model's, and this server does not allow that: an "
            "administrator can, with CONCH_ALLOW_NATIVE_CODE=true for a worker or "
            f"--backend-config={backend},{KEY}=true"
        )


_ELF64 = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQ14xHH")
"""Of an ELF file: where its program headers begin, the size of one, how many there are."""
_PROGRAM_HEADER = struct.Struct("<I4xQ16xQ")
"""Its kind, where the segment begins in the file, how long it is there."""
_LOADED = 1


def check_whole(path: Path) -> None:
    """Opening a library whose end is missing, say while it is copied, ends the process.

    A file that is no library passes: opening it fails with its own reason, as where it cannot be
    read. Raises: ModelLoadError.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
            size = file.seek(0, 2)
    except OSError:
        return
    if not head.startswith(_ELF64) or len(head) < _HEADER.size:
        return
    begin, step, count = _HEADER.unpack_from(head)
    needed = begin + step * count
    for at in range(begin, min(needed, len(head) - _PROGRAM_HEADER.size + 1), max(step, 1)):
        kind, offset, length = _PROGRAM_HEADER.unpack_from(head, at)
        if kind == _LOADED:
            needed = max(needed, offset + length)
    if needed > size:
        raise ModelLoadError(
            f"{path.parent.name}/{path.name} is cut short, it has {size} of {needed} bytes: copy "
            "it anew"
        )
