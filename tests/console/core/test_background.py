"""Tasks that cannot be sent now are left to the sweeps."""

from __future__ import annotations

from typing import Any

from console.core.background import send
from tests.console.fakes import FakeWorkerClient


class Task:
    name = "sweep"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.sent: list[Any] = []

    def apply_async(self, *, args: Any, retry: bool) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(args)


def test_a_task_is_sent_with_its_arguments() -> None:
    task = Task()

    assert send(task, 1, "a")
    assert task.sent == [(1, "a")]


def test_a_broker_that_is_away_is_no_error() -> None:
    task = Task()
    task.error = OSError("refused")

    assert not send(task)


def test_nobody_waits_for_a_redis_that_hangs(fake_workers: FakeWorkerClient) -> None:
    task = Task()
    fake_workers.is_hanging = True

    assert not send(task)
    assert task.sent == []
