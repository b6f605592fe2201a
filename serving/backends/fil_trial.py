"""Reads a tree model in a child process first, where a damaged file can crash nobody else.

`try_in_child` is entered by load threads; the rest is the child's main thread. What has passed once
is remembered by its content, so that loading again, or completing the config before, costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from serving import child_program
from serving.backends.fil_files import check_trees, not_such, read_model, treelite
from serving.config.tree_outputs import TreeParameters
from serving.errors import ServingError

_SECONDS, _SECONDS_PER_MIB = 60, 1
_MEMORY, _MEMORY_PER_BYTE = 16 * 2**30, 64
_ROWS = 64
_MIB = 2**20
_passed: set[tuple[str, str, bool]] = set()
_lock = threading.Lock()


def try_in_child(path: Path, parameters: TreeParameters) -> None:
    """Raises: ModelLoadError for a file that cannot be read, or would crash the server."""
    treelite()  # a runtime that is missing is told as such
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    key = (digest, parameters.model_type, parameters.allows_unknown_fields)
    if key in _passed:
        return
    seconds = _SECONDS + _SECONDS_PER_MIB * path.stat().st_size // _MIB
    words = [os.getpid(), parameters.model_type, int(parameters.allows_unknown_fields), path]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            child_program.command(__name__, *words),
            env=child_program.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        cause = f"the file is damaged: reading it did not end within {seconds} s"
        raise not_such(path, parameters.model_type, cause) from error
    cause = _answer(done.stdout)
    if done.returncode:
        ended = child_program.describe_exit(done.returncode)
        cause = f"the file is damaged: a process that read it {ended}"
    if cause:
        raise not_such(path, parameters.model_type, cause)
    with _lock:
        _passed.add(key)


def _answer(output: bytes) -> str:
    """What the child wrote last; Treelite may have printed before."""
    lines = output.decode("utf-8", "replace").splitlines()
    return str(json.loads(lines[-1])) if lines else ""


def _try(path: Path, kind: str, *, allows_unknown_fields: bool) -> str:
    """The cause of a refusal, or ""."""
    try:
        model = read_model(path, kind, allows_unknown_fields=allows_unknown_fields)
        check_trees(model)
        generator = np.random.default_rng(0)
        rows = generator.normal(scale=10, size=(_ROWS, int(model.num_feature)))
        rows[generator.random(rows.shape) < 0.1] = np.nan
        treelite().gtil.predict(model, rows, nthread=1)
    except ServingError as error:
        return error.message.partition(f" is no model of type {kind}: ")[2]
    except Exception as error:
        return f"the file is damaged: {error}".partition("\n")[0][:300]
    return ""


def main() -> None:
    parent, kind, unknown, name = sys.argv[1:]
    child_program.die_with_parent(int(parent))
    path = Path(name)
    memory = _MEMORY + _MEMORY_PER_BYTE * path.stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cause = _try(path, kind, allows_unknown_fields=unknown == "1")
    sys.stdout.write(f"\n{json.dumps(cause)}\n")


if __name__ == "__main__":
    main()
