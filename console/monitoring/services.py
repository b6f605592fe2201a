"""Rolls the workers' 1 Hz samples up into minutes, and forgets old minutes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import msgspec
from django.utils import timezone

from console.core.workers import get_client
from console.monitoring.aggregate import merge_samples
from console.monitoring.models import MinuteSample
from workers.messages import Sample

KEPT_FOR = timedelta(days=7)
# A minute is rolled up when it ended this long ago: late samples have arrived by then.
LATE_S = 5.0


def roll_up(*, now: float | None = None) -> int:
    """Writes the whole minutes that are in the stream and not yet in the database."""
    now = time.time() if now is None else now
    newest = MinuteSample.objects.order_by("-minute").values_list("minute", flat=True).first()
    # The newest minute again: a second worker's part of it may have come late.
    since = newest.timestamp() if newest else now - 3600
    minutes: dict[tuple[str, int], list[Sample]] = {}
    for sample in get_client().samples(since=max(since, now - 3600)):
        minute = int(sample.at // 60) * 60
        if minute + 60 + LATE_S <= now:
            minutes.setdefault((sample.worker_id, minute), []).append(sample)
    rows = [
        MinuteSample(
            worker_id=worker_id,
            minute=datetime.fromtimestamp(minute, UTC),
            sample=msgspec.to_builtins(merge_samples(samples)),
        )
        for (worker_id, minute), samples in minutes.items()
    ]
    MinuteSample.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def forget_old() -> int:
    count, _ = MinuteSample.objects.filter(minute__lt=timezone.now() - KEPT_FOR).delete()
    return count
