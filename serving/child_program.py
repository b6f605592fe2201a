"""What every child process of the core has in common: environment, dying with its parent, its end.

Used by the worker when it starts one (any thread) and by the child's own main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OWN_SETTINGS = "CONCH_"

# Large temporary arrays are reused instead of being mapped and unmapped each time (page faults).
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_TOP_PAD_": "16777216",
}


_ROOT = str(Path(__file__).resolve().parents[1])
_FOREIGN_START = str(Path(__file__).resolve().with_name("foreign_start.py"))
_ACTIVATED = 'source "$0" > /dev/null && exec "$@"'


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One of an environment of a model's own."""

    python: str
    activate: str = ""
    """A script that bash sources first; empty for none."""
    is_own_version: bool = True
    """It can use the packages that lie beside the core."""
    lease: object = field(default=None, compare=False, repr=False)
    """Keeps the environment from being removed as long as somebody holds this object."""


def command(module: str, *arguments: object, interpreter: Interpreter | None = None) -> list[str]:
    """Unbuffered output, a traceback on a fault, no modules from the current directory."""
    words = list(map(str, arguments))
    if interpreter is None:
        options = ["-u", "-P", "-X", "faulthandler"]
        return [sys.executable, *options, "-m", module, *words]
    beside = [item for item in sys.path if item.endswith(("site-packages", "dist-packages"))]
    paths = [_ROOT, *beside] if interpreter.is_own_version else [_ROOT]
    foreign = [interpreter.python, "-u", "-X", "faulthandler", _FOREIGN_START]
    foreign += [os.pathsep.join(paths), os.pathsep.join(beside), module, *words]
    if not interpreter.activate:
        return foreign
    return ["/bin/bash", "-c", _ACTIVATED, interpreter.activate, *foreign]


def environment(
    interpreter: Interpreter | None = None, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """This process's environment, with the core importable and the allocator tuned."""
    kept = _MALLOC | without_own_settings() | dict(variables or {})
    if interpreter is not None:
        for name in ("PYTHONPATH", "PYTHONHOME"):
            kept.pop(name, None)
        return kept | {"PYTHONSAFEPATH": "1"}
    path = kept.get("PYTHONPATH", "")
    search = [_ROOT, *(item for item in path.split(os.pathsep) if item and item != _ROOT)]
    return kept | {"PYTHONPATH": os.pathsep.join(search)}


def without_own_settings() -> dict[str, str]:
    """Conch's own settings, which may hold secrets, are none of a model's business."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_OWN_SETTINGS)}


def die_with_parent(parent_pid: int, signum: signal.Signals = signal.SIGKILL) -> None:
    """For the child, first of all. Ctrl-C in a terminal is left to the parent as well."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent_pid:
        os._exit(1)  # the parent died before the line above took effect
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def describe_exit(return_code: int) -> str:
    """For a return code of subprocess: negative is a signal number."""
    if return_code >= 0:
        return f"exited with code {return_code}"
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = f"number {-return_code}"
    text = f"was killed by signal {name}"
    if -return_code == signal.SIGKILL:
        text += " (where nobody sent it, the kernel had run out of memory)"
    return text
