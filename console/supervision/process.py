"""One supervised process: how it is started, when it counts as ready, how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Linux only: the kernel signals the process when its supervisor dies, however that happens. The
# process leads a group of its own so that Ctrl-C in a terminal reaches the supervisor alone, which
# then stops everything in order.
_DIE_WITH_PARENT = (
    "import ctypes,os,signal,sys;"
    "p=int(sys.argv[1]);"
    "ctypes.CDLL(None).prctl(1,signal.SIGTERM);"
    "os.getppid()==p or sys.exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    is_ready: Callable[[], bool]
    where: str = ""
    """What to tell a person about it: an address, mostly."""
    ready_within_s: float = 60.0
    stop_within_s: float = 15.0


@dataclass
class SupervisedProcess:
    """State of one process. The supervisor's thread only."""

    spec: ProcessSpec
    log_path: Path
    popen: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    is_announced: bool = False
    quick_deaths: int = 0
    restart_at: float = 0.0
    last_exit: str = field(default="")

    def start(self, now: float) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.popen = subprocess.Popen(  # noqa: S603 - argv is ours
                [sys.executable, "-c", _DIE_WITH_PARENT, str(os.getpid()), *self.spec.argv],
                env=dict(self.spec.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started_at = now
        self.is_announced = False

    @property
    def pid(self) -> int:
        return self.popen.pid if self.popen is not None else 0

    def is_running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def exit_text(self) -> str:
        """How it ended, in words: `exit code 1` or `killed by SIGKILL`."""
        code = self.popen.returncode if self.popen is not None else None
        if code is None:
            return "still running"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def send(self, signum: int) -> None:
        if self.is_running() and self.popen is not None:
            self.popen.send_signal(signum)

    def last_lines(self, count: int = 12) -> str:
        """The end of its log, for the person who must mend it."""
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(f"    {line}" for line in lines[-count:])
