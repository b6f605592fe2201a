"""What tests of deployments do to fake workers, and what they look at."""

from __future__ import annotations

import time
from typing import Any

from console.deployments import operations
from console.deployments.models import DesiredModel
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from workers.messages import OperationResult


def answer(client: FakeWorkerClient, error: str = "", versions: tuple[str, ...] = ("2",)) -> None:
    """Every operation that was sent ends."""
    now = time.time()
    for call in client.calls:
        client.results.setdefault(
            call.operation_id,
            OperationResult(
                call.operation_id, call.worker_id, call.action, call.model, not error, error,
                now - 1, now, list(versions),
            ),
        )  # fmt: skip
    operations.follow()


def serve(client: FakeWorkerClient, *versions: str, worker_id: str = "gpu-1") -> None:
    models = [make_model("cat", version) for version in versions]
    others = [info for info in client.infos if info.worker_id != worker_id]
    client.infos = [*others, make_worker(worker_id, models=models)]


def sent(client: FakeWorkerClient) -> list[tuple[str, str, Any]]:
    return [
        (call.action, call.worker_id, call.arguments.get("versions", call.arguments.get("version")))
        for call in client.calls
    ]  # fmt: skip


def desired() -> list[tuple[str, str, Any]]:
    return list(DesiredModel.objects.values_list("worker_id", "state", "versions"))
