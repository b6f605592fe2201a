"""Runs scenarios on a server, keeps outcomes in a file, and tells how two outcomes differ."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from tests.conformance import side_by_side
from tests.conformance.side_by_side.drive import InconclusiveError, Server
from tests.conformance.side_by_side.repository import DATA
from tests.conformance.side_by_side.scenario import SCENARIOS, Scenario, outcome_of

Outcomes = dict[str, dict[str, Any]]
RECORDED = DATA / "recorded.json"
KNOWN = Path(__file__).parents[1] / "known_scheduler_differences.toml"
_LANES = 8


def scenarios(only: str = "") -> list[Scenario]:
    for module in pkgutil.iter_modules(side_by_side.__path__):
        if module.name.startswith("scenes_"):
            importlib.import_module(f"{side_by_side.__name__}.{module.name}")
    return [item for name, item in sorted(SCENARIOS.items()) if only in name]


def run(items: list[Scenario], server: Server) -> Outcomes:
    """Scenarios that share a model run one after the other, others side by side."""
    return asyncio.run(_run(items, server))


async def _run(items: list[Scenario], server: Server) -> Outcomes:
    outcomes: Outcomes = {}
    lanes = asyncio.Semaphore(_LANES)
    locks = {model: asyncio.Lock() for item in items for model in item.models}

    async def play(item: Scenario) -> None:
        for model in sorted(item.models):
            await locks[model].acquire()
        try:
            async with lanes:
                outcomes[item.name] = await outcome_of(item, server)
        except InconclusiveError as error:
            outcomes[item.name] = {"inconclusive": str(error)}
        except grpc.aio.AioRpcError as error:
            outcomes[item.name] = {"refused": f"{error.code().name}: {error.details()}"}
        except Exception as error:
            error.add_note(f"in the scenario {item.name}")
            raise
        finally:
            for model in item.models:
                locks[model].release()

    await asyncio.gather(*(play(item) for item in items))
    return {item.name: outcomes[item.name] for item in items}


def differences(wanted: Any, got: Any, place: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in sorted(wanted.keys() | got.keys()):
            inner = f"{place}.{name}".lstrip(".")
            yield from differences(wanted.get(name), got.get(name), inner)
    elif wanted != got:
        yield f"{place}: Triton {_short(wanted)}, here {_short(got)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 300 else text[:300] + "..."


def load_recorded() -> Outcomes:
    recorded: Outcomes = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recorded


def save_recorded(outcomes: Outcomes) -> None:
    """One line for each part of an outcome, so that changes can be read."""
    entries = []
    for name, outcome in sorted(outcomes.items()):
        parts = [f"  {json.dumps(key)}: {json.dumps(part)}" for key, part in outcome.items()]
        entries.append(f"{json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n}")
    RECORDED.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def known_differences() -> dict[str, str]:
    """Scenario, or scenario and place -> reason."""
    groups = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    return {
        entry: reason
        for reasons in groups.values()
        for reason, entries in reasons.items()
        for entry in entries
    }


@dataclass(slots=True)
class Comparison:
    unexplained: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Known differences that are none any more."""


def compare(wanted: Outcomes, got: Outcomes) -> Comparison:
    known, seen = known_differences(), set()
    told = Comparison()
    for name in wanted:
        for line in differences(wanted[name], got.get(name, {})):
            place = f"{name} {line}"
            entry = next((item for item in known if _covers(item, place)), "")
            (told.explained if entry else told.unexplained).append(place)
            seen.add(entry)
    told.gone = [entry for entry in known if entry not in seen and entry.split()[0] in wanted]
    return told


def _covers(entry: str, place: str) -> bool:
    return place.startswith((f"{entry}.", f"{entry}:", f"{entry} "))
