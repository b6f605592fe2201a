"""`python -m tests.conformance.side_by_side`: a real Triton and this server, driven alike.

    TRITON_SCRIPT=.../run_triton.sh python -m tests.conformance.side_by_side compare
    python -m tests.conformance.side_by_side replay          # against what Triton answered earlier
    TRITON_SCRIPT=... python -m tests.conformance.side_by_side record
    python -m tests.conformance.side_by_side models FOLDER --stand plain
    python -m tests.conformance.side_by_side compare --stand plain \
        --triton HOST:8000,HOST:8001,HOST:8002 --conch HOST:9000,HOST:9001,HOST:9002

Addresses are HTTP, gRPC and metrics; a server without one is started here. A server that is already
running must serve the repository that `models` writes, with the options of the stand.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from tests.conformance.side_by_side import compare, repository, servers
from tests.conformance.side_by_side.compare import Outcomes
from tests.conformance.side_by_side.drive import Server
from tests.conformance.side_by_side.scenario import STANDS, Scenario


def main() -> int:
    options = _parse()
    items = [item for item in compare.scenarios(options.only) if options.stand in ("", item.stand)]
    if options.action == "models":
        repository.write({model for item in items for model in item.models}, options.folder)
        return 0
    if options.action == "replay":
        recorded = compare.load_recorded()
        wanted = {item.name: recorded.get(item.name, {}) for item in items}
    else:
        wanted = play(items, "triton", options.triton)
    if options.action == "record":
        recorded = compare.load_recorded() if compare.RECORDED.exists() else {}
        known = {item.name for item in compare.scenarios()}
        kept = {name: outcome for name, outcome in recorded.items() if name in known}
        compare.save_recorded(kept | wanted)
        return 0
    return _report(wanted, play(items, "conch", options.conch))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.side_by_side",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("compare", "replay", "record", "models"))
    parser.add_argument("folder", nargs="?", type=Path, help="where `models` writes")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--stand", default="", choices=("", *STANDS))
    parser.add_argument("--triton", default="", help="HTTP,GRPC,METRICS addresses")
    parser.add_argument("--conch", default="", help="HTTP,GRPC,METRICS addresses")
    return parser.parse_args()


def play(items: list[Scenario], which: str, addresses: str = "") -> Outcomes:
    outcomes: Outcomes = {}
    for name, stand in STANDS.items():
        chosen = [item for item in items if item.stand == name]
        if not chosen:
            continue
        models = {model for item in chosen for model in item.models}
        start = servers.triton if which == "triton" else servers.conch
        running = (
            contextlib.nullcontext(Server(*addresses.split(",")))
            if addresses
            else start(stand, models)
        )
        with running as server:
            outcomes |= compare.run(chosen, server)
    return outcomes


def _report(wanted: Outcomes, got: Outcomes) -> int:
    told = compare.compare(wanted, got)
    lines = [f"known {line}" for line in told.explained]
    lines += [f"GONE {entry}" for entry in told.gone]
    lines += [f"DIFFERENT {line}" for line in told.unexplained]
    lines.append(f"{len(wanted)} scenarios, {len(told.unexplained)} unexplained differences")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if told.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
