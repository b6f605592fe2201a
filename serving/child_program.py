"""What every child process of the core has in common: environment, dying with its parent, its end.

Used by the worker when it starts one (any thread) and by the child's own main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OWN_SETTINGS = "CONCH_"

# Large temporary arrays are reused instead of being mapped and unmapped each time (page faults).
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_TOP_PAD_": "16777216",
}


def command(module: str, *arguments: object) -> list[str]:
    """Unbuffered output, a traceback on a fault, no modules from the current directory."""
    options = ["-u", "-P", "-X", "faulthandler"]
    return [sys.executable, *options, "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's environment, with the core importable and the allocator tuned.

    Conch's own settings, which may hold secrets, are none of a model's business.
    """
    root = str(Path(__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH", "")
    search = [root, *(item for item in path.split(os.pathsep) if item and item != root)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OWN_SETTINGS)}
    return _MALLOC | kept | {"PYTHONPATH": os.pathsep.join(search)}


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
