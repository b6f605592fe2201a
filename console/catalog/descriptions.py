"""Asks workers to describe a model; a worker that does not answer becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from console.catalog.selectors import ModelHeader
from console.core.workers import get_client
from workers.client import WorkerError
from workers.messages import ModelDescription

TIMEOUT_S = 3.0


def describe_everywhere(header: ModelHeader) -> tuple[dict[str, ModelDescription], list[str]]:
    """(worker -> description, problems), asked of every worker that serves the model."""
    return _ask(header, serving_workers(header))


def describe_somewhere(header: ModelHeader) -> tuple[ModelDescription | None, list[str]]:
    """The first description that a worker gives, and the problems on the way to it."""
    problems: list[str] = []
    for worker_id in serving_workers(header):
        found, failed = _ask(header, [worker_id])
        problems += failed
        if found:
            return found[worker_id], problems
    return None, problems


def serving_workers(header: ModelHeader) -> list[str]:
    return sorted({item.worker_id for item in header.row.observed.placements if item.is_serving})


def _ask(
    header: ModelHeader, worker_ids: Iterable[str]
) -> tuple[dict[str, ModelDescription], list[str]]:
    found: dict[str, ModelDescription] = {}
    problems: list[str] = []
    for worker_id in worker_ids:
        try:
            found[worker_id] = get_client().describe_model(
                worker_id, header.name, timeout_s=TIMEOUT_S
            )
        except WorkerError as error:
            problems.append(f"{worker_id}: {error}")
    return found, problems
