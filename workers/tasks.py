"""The tasks of the queue `worker.<id>`: orders and questions of the console, never a tensor.

They run in Celery's pool threads and hand over to the WorkerHost of this process. Results of
operations go to Redis by operation id, answers to the asker's reply key; Celery keeps none.
"""

from __future__ import annotations

from typing import Any

import msgspec
from celery import shared_task
from celery.signals import task_revoked

from workers import hosting
from workers.engine_messages import EngineOrder

LOAD = "workers.load_model"
UNLOAD = "workers.unload_model"
DESCRIBE = "workers.describe_model"
INDEX = "workers.index_models"
BUILD_ENGINE = "workers.build_engine"
CANCEL_ENGINE = "workers.cancel_engine"
_TOO_LATE = "the {} waited too long in the worker's queue and was dropped; ask again"


@shared_task(name=LOAD)  # type: ignore[untyped-decorator]
def load_model(
    model: str,
    operation_id: str,
    versions: list[int] | None = None,
    config: str | None = None,
) -> None:
    hosting.current().load(model, operation_id, versions=versions, config=config)


@shared_task(name=UNLOAD)  # type: ignore[untyped-decorator]
def unload_model(
    model: str,
    operation_id: str,
    version: int | None = None,
    unload_dependents: bool = False,
) -> None:
    hosting.current().unload(
        model, operation_id, version=version, unload_dependents=unload_dependents
    )


@shared_task(name=DESCRIBE)  # type: ignore[untyped-decorator]
def describe_model(model: str, reply_id: str) -> None:
    hosting.current().describe(model, reply_id)


@shared_task(name=INDEX)  # type: ignore[untyped-decorator]
def index_models(reply_id: str) -> None:
    hosting.current().index(reply_id)


@shared_task(name=BUILD_ENGINE)  # type: ignore[untyped-decorator]
def build_engine(order: dict[str, Any]) -> None:
    hosting.current().engines.start(msgspec.convert(order, EngineOrder))


@shared_task(name=CANCEL_ENGINE)  # type: ignore[untyped-decorator]
def cancel_engine(build_id: str) -> None:
    hosting.current().engines.cancel(build_id)


@task_revoked.connect  # type: ignore[untyped-decorator]
def tell_of_expiry(request: Any = None, expired: bool = False, **ignored: Any) -> None:
    """An order that lay in the queue for too long is not carried out; its asker must know."""
    actions = {LOAD: "load", UNLOAD: "unload"}
    action = actions.get(str(getattr(request, "task", "")))
    arguments = getattr(request, "kwargs", None) or {}
    if expired and getattr(request, "task", "") == BUILD_ENGINE and "order" in arguments:
        order = msgspec.convert(arguments["order"], EngineOrder)
        hosting.current().engines.refuse(order, _TOO_LATE.format("build"))
    if expired and action is not None and "operation_id" in arguments:
        hosting.current().fail(
            action,
            arguments.get("model", ""),
            arguments["operation_id"],
            _TOO_LATE.format(action),
        )
