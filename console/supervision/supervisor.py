"""Keeps a list of processes running and stops them in order.

One thread, one loop: look at each process, restart the dead with back-off, announce the ready. A
process that keeps dying young is retried ever more slowly, never given up: what it needs (a port, a
database) may come back.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from console.supervision.process import ProcessSpec, SupervisedProcess

POLL_SECONDS = 0.2
QUICK_DEATH_SECONDS = 30.0
MAX_BACKOFF_SECONDS = 30.0
LOG_KEEP_BYTES = 20_000_000


class StartFailedError(Exception):
    """A process did not come up at the first start; everything has been stopped again."""


def backoff_seconds(quick_deaths: int) -> float:
    """Pause before the next start: none after a first death, then 1, 2, 4 ... 30 s."""
    if quick_deaths <= 1:
        return 0.0
    return float(min(MAX_BACKOFF_SECONDS, 2.0 ** (quick_deaths - 2)))


class Supervisor:
    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        log_directory: Path,
        tell: Callable[[str], None],
    ) -> None:
        self._processes = [
            SupervisedProcess(spec, log_directory / f"{spec.name}.log") for spec in specs
        ]
        self._tell = tell
        self._stop_requested = threading.Event()
        self._signals = 0

    def run(self, on_ready: Callable[[], None]) -> None:
        """Start all in order, watch until a signal, stop all in reverse order.

        Raises: StartFailedError when one does not become ready at the first start.
        """
        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(signum, self._on_signal) for signum in signals]
        try:
            for process in self._processes:
                self._first_start(process)
                if self._stop_requested.is_set():
                    return
            on_ready()
            while not self._stop_requested.wait(POLL_SECONDS):
                for process in self._processes:
                    self._watch(process, time.monotonic())
        finally:
            self._stop_all()
            for signum, handler in zip(signals, before, strict=True):
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._stop_requested.set()

    def _first_start(self, process: SupervisedProcess) -> None:
        _rotate(process.log_path)
        process.start(time.monotonic())
        deadline = time.monotonic() + process.spec.ready_within_s
        while not self._stop_requested.is_set():
            if not process.is_running():
                raise StartFailedError(self._why(process, f"ended ({process.exit_text()})"))
            if process.spec.is_ready():
                self._announce(process)
                return
            if time.monotonic() > deadline:
                within = f"was not ready within {process.spec.ready_within_s:.0f} s"
                raise StartFailedError(self._why(process, within))
            self._stop_requested.wait(POLL_SECONDS)

    def _why(self, process: SupervisedProcess, what: str) -> str:
        return f"{process.spec.name} {what}. The end of {process.log_path}:\n{process.last_lines()}"

    def _announce(self, process: SupervisedProcess) -> None:
        process.is_announced = True
        where = f"  {process.spec.where}" if process.spec.where else ""
        self._tell(f"{process.spec.name:<8} ready  pid {process.pid}{where}")

    def _watch(self, process: SupervisedProcess, now: float) -> None:
        if process.is_running():
            if not process.is_announced and process.spec.is_ready():
                self._announce(process)
            if now - process.started_at > QUICK_DEATH_SECONDS:
                process.quick_deaths = 0
            return
        if process.popen is not None:
            process.quick_deaths += 1
            pause = backoff_seconds(process.quick_deaths)
            process.restart_at = now + pause
            wait = f" in {pause:.0f} s" if pause else ""
            self._tell(
                f"{process.spec.name:<8} ended  {process.exit_text()}; starting it again{wait} "
                f"(log: {process.log_path})"
            )
            process.popen = None
        if now >= process.restart_at:
            process.start(now)

    def _stop_all(self) -> None:
        for process in reversed(self._processes):
            if not process.is_running():
                continue
            process.send(signal.SIGTERM)
            deadline = time.monotonic() + process.spec.stop_within_s
            # A second Ctrl-C means: do not wait any longer.
            while process.is_running() and time.monotonic() < deadline and self._signals < 2:
                time.sleep(0.05)
            if process.is_running():
                process.send(signal.SIGKILL)
                self._tell(f"{process.spec.name:<8} killed (it did not stop in time)")
            else:
                self._tell(f"{process.spec.name:<8} stopped")
            if process.popen is not None:
                process.popen.wait()


def _rotate(path: Path) -> None:
    if path.is_file() and path.stat().st_size > LOG_KEEP_BYTES:
        path.replace(path.with_suffix(".log.1"))
