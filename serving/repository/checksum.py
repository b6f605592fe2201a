"""Digests of model files, as the checksum agent compares them. Blocking. Source: spec REP-113."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from serving.errors import InvalidArgumentError

_ALGORITHMS = {"MD5": hashlib.md5, "SHA256": hashlib.sha256}
"""MD5 is Triton's: it finds broken copies, and is no defence. SHA256 is ours."""


def verify(directory: Path, parameters: Mapping[str, str]) -> None:
    """`parameters`: "MD5:<path in the model directory>" -> hex digest.

    Raises: InvalidArgumentError for a digest that differs, and for what cannot be compared.
    """
    for key, expected in sorted(parameters.items()):
        algorithm, colon, relative = key.partition(":")
        if not colon or not relative or algorithm not in _ALGORITHMS:
            raise InvalidArgumentError(
                f"unsupported parameter '{key}': write MD5:<file> or SHA256:<file>, with the path "
                "of the file in the model directory"
            )
        found = _digest(_inside(directory, relative), algorithm, relative)
        if found != expected.strip().lower():
            raise InvalidArgumentError(
                f"mismatched {algorithm} hash for file {relative}, expecting: {expected}, got: "
                f"{found}"
            )


def _inside(directory: Path, relative: str) -> Path:
    path = directory / relative
    if Path(relative).is_absolute() or ".." in Path(relative).parts:
        raise InvalidArgumentError(f"file '{relative}' lies outside the model directory")
    return path


def _digest(path: Path, algorithm: str, relative: str) -> str:
    digest = _ALGORITHMS[algorithm](usedforsecurity=False)
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise InvalidArgumentError(f"file '{relative}' cannot be read: {error.strerror}") from error
    return digest.hexdigest()
