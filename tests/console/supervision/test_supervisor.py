"""The supervisor, with real processes that do nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from console.supervision.process import ProcessSpec
from console.supervision.supervisor import StartFailedError, Supervisor, backoff_seconds

SLEEPER = "import time,sys; print('up', flush=True); time.sleep(600)"


def spec(name: str, code: str = SLEEPER, **changes: object) -> ProcessSpec:
    values: dict[str, object] = {"is_ready": lambda: True, **changes}
    return ProcessSpec(name, [sys.executable, "-c", code], dict(os.environ), **values)  # type: ignore[arg-type]


class Teller:
    """Collects what the supervisor says and lets a thread wait for a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def wait_for(self, text: str, count: int = 1) -> str:
        with self._changed:
            found = self._changed.wait_for(lambda: len(self._matching(text)) >= count, timeout=20)
            assert found, self.lines
            return self._matching(text)[count - 1]

    def _matching(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


def run_with(supervisor: Supervisor, steps: threading.Thread) -> None:
    supervisor.run(steps.start)
    steps.join(10)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_processes_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    tell = Teller()
    supervisor = Supervisor([spec("first"), spec("second")], tmp_path, tell)

    run_with(supervisor, threading.Thread(target=interrupt))

    names = [line.split()[0] for line in tell.lines]
    assert names == ["first", "second", "second", "first"]
    assert "ready" in tell.lines[0]
    assert "stopped" in tell.lines[3]


def test_a_killed_process_is_started_again_and_its_end_is_explained(tmp_path: Path) -> None:
    tell = Teller()
    supervisor = Supervisor([spec("worker")], tmp_path, tell)

    def kill_once() -> None:
        pid = int(tell.wait_for("worker   ready").split("pid ")[1].split()[0])
        os.kill(pid, signal.SIGKILL)
        tell.wait_for("killed by SIGKILL")
        tell.wait_for("worker   ready", count=2)
        interrupt()

    run_with(supervisor, threading.Thread(target=kill_once))

    assert any("starting it again" in line for line in tell.lines)


def test_a_process_that_ends_at_the_first_start_stops_everything_and_shows_its_log(
    tmp_path: Path,
) -> None:
    tell = Teller()
    broken = spec("web", "raise SystemExit('no such setting')", is_ready=lambda: False)
    supervisor = Supervisor([spec("redis"), broken], tmp_path, tell)

    with pytest.raises(StartFailedError, match=r"web ended \(exit code 1\)[\s\S]*no such setting"):
        supervisor.run(lambda: None)

    assert any(line.startswith("redis    stopped") for line in tell.lines)


def test_a_process_that_is_not_ready_in_time_is_an_error(tmp_path: Path) -> None:
    slow = spec("web", is_ready=lambda: False, ready_within_s=0.5)

    with pytest.raises(StartFailedError, match="not ready within"):
        Supervisor([slow], tmp_path, Teller()).run(lambda: None)


def test_a_process_that_ignores_sigterm_is_killed_after_its_time(tmp_path: Path) -> None:
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
    tell = Teller()
    up = tmp_path / "stubborn.log"
    stubborn = spec(
        "stubborn",
        code,
        stop_within_s=0.3,
        is_ready=lambda: up.exists() and b"up" in up.read_bytes(),
    )

    run_with(Supervisor([stubborn], tmp_path, tell), threading.Thread(target=interrupt))

    assert any("killed (it did not stop in time)" in line for line in tell.lines)


def test_the_pause_before_a_restart_doubles_up_to_half_a_minute() -> None:
    assert [backoff_seconds(deaths) for deaths in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]
