"""A scenario: a function that drives one server, and what is told of its outcome.

    @scenario("batch", words=("maximum queue size",))
    async def what_it_shows(drive: Drive) -> Facts | None: ...

The outcome is JSON: executions (tags grouped as they ran together, in order), answers, counters of
the statistics and of the failure metric, and the facts that the function returns. Of an error's
text only the scenario's words count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.side_by_side.drive import Call, Drive, InconclusiveError, Server

Facts = dict[str, Any]
_PATIENCE = (1.0, 2.0, 4.0, 8.0)
_SETTLE_S = 0.5
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Stand:
    """How a server is started for its scenarios."""

    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


STANDS = {
    "plain": Stand(("--cache-config=local,size=1048576",)),
    "limited": Stand(("--rate-limit=execution_count",)),
    "pool": Stand(("--rate-limit=execution_count", "--rate-limit-resource=pool:2")),
    "held": Stand(environment=(("TRITONSERVER_DELAY_SCHEDULER", "4"),)),
    "backlog": Stand(
        environment=(
            ("TRITONSERVER_DELAY_SCHEDULER", "2"),
            ("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2"),
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    models: tuple[str, ...]
    """The first one is driven; statistics of all are compared."""
    run: Callable[[Drive], Awaitable[Facts | None]]
    words: tuple[str, ...] = ()
    are_sent_at_once: bool = False
    stand: str = "plain"


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *models: str,
    words: tuple[str, ...] = (),
    are_sent_at_once: bool = False,
    stand: str = "plain",
) -> Callable[[Callable[[Drive], Awaitable[Facts | None]]], None]:
    """`are_sent_at_once`: their places in an execution are not compared."""

    def register(run: Callable[[Drive], Awaitable[Facts | None]]) -> None:
        name = f"{run.__module__.rpartition('.')[2].removeprefix('scenes_')}.{run.__name__}"
        assert name not in SCENARIOS
        SCENARIOS[name] = Scenario(name, models, run, words, are_sent_at_once, stand)

    return register


async def outcome_of(item: Scenario, server: Server) -> dict[str, Any]:
    """Raises: InconclusiveError when the machine is too slow even with the longest sleeps."""
    for patience in _PATIENCE:
        drive = Drive(server, item.models[0], patience)
        try:
            return await _run(item, drive)
        except InconclusiveError as error:
            reason = error
            await _quiet(drive)
        finally:
            await drive.close()
    raise reason


async def _run(item: Scenario, drive: Drive) -> dict[str, Any]:
    before = {model: await _counters(drive, model) for model in item.models}
    facts = await item.run(drive)
    await drive.answers()
    drive.check()
    outcome: dict[str, Any] = {"executions": _executions(drive.calls)}
    outcome["answers"] = {call.tag: _answer(call, item.words) for call in drive.calls}
    if item.are_sent_at_once:
        outcome["executions"] = [" ".join(sorted(x.split())) for x in outcome["executions"]]
    if early := drive.early():
        outcome["before the blocker"] = early
    after = await _settled(item, drive, before)
    outcome["statistics"] = {
        model: _difference(before[model], after[model]) for model in item.models
    }
    await drive.end_sequences()
    return outcome | (facts or {})


async def _quiet(drive: Drive) -> None:
    """Let what an abandoned try has sent come to its end, so that no counter moves later."""
    await drive.answers()
    await drive.end_sequences()
    await asyncio.sleep(_SETTLE_S)


def _executions(calls: list[Call]) -> list[str]:
    """Tags of what ran together, in order of the start; "-" is a place without a request."""
    groups: dict[tuple[int, int], tuple[int, list[str]]] = {}
    for call in calls:
        for response in call.responses:
            for row in _rows(response.get("RAN", []))[:1]:
                start_us, places = groups.setdefault((row[0], row[1]), (row[-2], ["-"] * row[3]))
                places[row[2]] = call.tag
    return [" ".join(places) for _, places in sorted(groups.values())]


def _rows(value: list[Any]) -> list[list[int]]:
    return value if not value or isinstance(value[0], list) else [value]


def _answer(call: Call, words: tuple[str, ...]) -> Any:
    responses = [_told(response) for response in call.responses]
    if not call.code:
        return responses[0] if len(responses) == 1 else responses
    said = call.message.lower()
    says = [word for word in words if word.lower() in said]
    told: dict[str, Any] = {"error": call.code}
    if call.code != "CANCELLED" and (words or call.code == "STREAM"):
        told["says"] = says or call.message
    return [*responses, told] if responses else told


def _told(response: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs from run to run: when it ran, and how long it slept."""
    ran = _rows(response.get("RAN", []))
    told = {name: value for name, value in response.items() if name != "RAN"}
    if ran and "OUTPUT0" in told:
        told["OUTPUT0"] = [row[1:] for row in _rows(told["OUTPUT0"])]
    if ran:
        told["inputs"] = ran[0][4]
    return told


async def _settled(
    item: Scenario, drive: Drive, before: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Counters some moments after the last answer, when they have stopped to move."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SETTLE_S * drive.patience
    sent = len([call for call in drive.calls if call.model == item.models[0]])
    while True:
        after = {model: await _counters(drive, model) for model in item.models}
        first = item.models[0]
        ended = sum(after[first][key] - before[first][key] for key in ("success", "fail"))
        if ended == sent or loop.time() > deadline:
            return after
        await asyncio.sleep(_PAUSE_S)


async def _counters(drive: Drive, model: str) -> dict[str, Any]:
    told = await drive.statistics(model)
    stats = told.inference_stats
    failures = await drive.metric("nv_inference_request_failure", model)
    return {
        "success": stats.success.count,
        "fail": stats.fail.count,
        "inferences": told.inference_count,
        "executions": told.execution_count,
        "hits": stats.cache_hit.count,
        "misses": stats.cache_miss.count,
        **{f"batch {item.batch_size}": item.compute_infer.count for item in told.batch_stats},
        **{f"failed {_reason(labels)}": int(value) for labels, value in failures.items()},
        **{
            f"response {index} {kind}": getattr(item, kind).count
            for index, item in told.response_stats.items()
            for kind in ("success", "fail", "empty_response", "cancel")
        },
    }


def _reason(labels: str) -> str:
    return labels.partition('reason="')[2].partition('"')[0]


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    grown = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: grown[name] for name in sorted(grown) if grown[name]}
