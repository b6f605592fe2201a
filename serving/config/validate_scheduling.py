"""Rules about dynamic batching and its queues."""

from __future__ import annotations

from collections.abc import Sequence

from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.schema import map_path


def check_scheduling(report: Report) -> None:
    config = report.config
    if config.HasField("dynamic_batching"):
        _check_dynamic(report)


def check_preferred(report: Report, label: str, path: str, sizes: Sequence[int]) -> None:
    limit = report.config.max_batch_size
    for index, size in enumerate(sizes):
        place = f"{path}[{index}]"
        if size <= 0:
            report.error(
                place,
                f"{label} preferred size must be positive, got {size}",
                f"sizes from 1 to {limit}" if limit > 0 else "set max_batch_size first",
                code="VAL-24" if "oldest" in path else "VAL-07",
                edit=report.mend.remove(place, f"Remove {size}"),
            )
        elif size > limit:
            report.error(
                place,
                f"{label} preferred size must be <= max batch size: preferred_batch_size {size} is "
                f"larger than max_batch_size {limit}",
                f"raise max_batch_size to {size}, or lower the preferred size",
                code="VAL-24" if "oldest" in path else "VAL-08",
                edit=(
                    report.mend.replace_value(place, str(limit))
                    if limit > 0 and limit not in sizes
                    else report.mend.remove(place, f"Remove {size}")
                ),
            )


def _check_dynamic(report: Report) -> None:
    dynamic = report.config.dynamic_batching
    path = "dynamic_batching"
    check_preferred(
        report, "dynamic batching", f"{path}.preferred_batch_size", dynamic.preferred_batch_size
    )
    if report.config.max_batch_size == 0:
        report.warning(
            path,
            "dynamic_batching has no effect: max_batch_size is 0, so requests are never merged",
            "set max_batch_size above 1, or remove dynamic_batching",
            code="CFG-006",
            edit=report.mend.remove(path),
        )
    _check_priorities(report, dynamic, path)
    if dynamic.preserve_ordering:
        _check_ordering(report, dynamic, path)


def _check_priorities(report: Report, dynamic: pb.ModelDynamicBatching, path: str) -> None:
    levels = dynamic.priority_levels
    default = dynamic.default_priority_level
    if levels > 0 and not 1 <= default <= levels:
        place = f"{path}.default_priority_level"
        report.error(
            place if report.parsed.has(place) else f"{path}.priority_levels",
            f"default priority level must be in range [1, {levels}], got {default}",
            f"set default_priority_level to one of 1 to {levels}",
            code="VAL-09",
            edit=(
                report.mend.replace_value(place, str(min(max(default, 1), levels)))
                if report.parsed.has(place)
                else report.mend.insert_after(
                    f"{path}.priority_levels", f"default_priority_level: {(levels + 1) // 2}"
                )
            ),
        )
    if levels == 0:
        if dynamic.priority_queue_policy:
            report.warning(
                f"{path}.priority_queue_policy",
                "priority_queue_policy has no effect: priority_levels is not set",
                "set priority_levels and default_priority_level; 1 is the highest priority",
                code="VAL-10",
                edit=report.mend.remove(f"{path}.priority_queue_policy"),
            )
        return
    for key in dynamic.priority_queue_policy:
        if not 1 <= key <= levels:
            report.error(
                map_path(f"{path}.priority_queue_policy", key),
                f"priority queue policy must have a priority level in range [1, {levels}], got "
                f"{key}",
                "1 is the highest priority; set priority_levels to the number of levels",
                code="VAL-10",
            )


def _check_ordering(report: Report, dynamic: pb.ModelDynamicBatching, path: str) -> None:
    if dynamic.priority_levels > 1:
        report.error(
            f"{path}.preserve_ordering",
            f"only one priority level is allowed when preserve_ordering is true, got "
            f"{dynamic.priority_levels}",
            "remove preserve_ordering, or priority_levels",
            code="VAL-11",
            edit=report.mend.remove(f"{path}.preserve_ordering"),
        )
    policies = [(f"{path}.default_queue_policy", dynamic.default_queue_policy, "VAL-12")]
    policies += [
        (map_path(f"{path}.priority_queue_policy", key), policy, "VAL-13")
        for key, policy in dynamic.priority_queue_policy.items()
    ]
    for place, policy, code in policies:
        delays = policy.timeout_action == pb.ModelQueuePolicy.DELAY
        if delays and policy.default_timeout_microseconds:
            report.error(
                f"{place}.timeout_action",
                "a queue policy with timeout action DELAY and a timeout cannot go with "
                "preserve_ordering",
                "use timeout_action: REJECT, or remove preserve_ordering",
                code=code,
                edit=report.mend.replace_value(f"{place}.timeout_action", "REJECT"),
            )
