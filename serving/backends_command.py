"""`python -m serving backends`: which backends a server here would have, and what is missing.

Imports no runtime and starts no server. Exit status 0, or 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from serving.backends.installed import InstalledBackend, describe
from serving.backends.registry import BackendRegistry


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m serving backends", description="List the backends of a server."
    )
    parser.add_argument("--backend-directory", type=Path, help="as a server is told")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    directory = options.backend_directory
    found = describe(BackendRegistry(None if directory is None else directory.absolute()))
    if options.json:
        sys.stdout.write(json.dumps([asdict(item) for item in found], indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(found)))
    return 0


def _lines(found: Sequence[InstalledBackend]) -> list[str]:
    rows = [("backend", "runtime", "devices", "from")]
    rows += [
        (
            item.name,
            f"{item.package} {item.version}".strip() or ("missing" if item.install else "-"),
            ", ".join(item.devices) or "-",
            item.origin,
        )
        for item in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for item in found:
        if item.problem:
            lines.append(f"{item.name}: {item.problem}: {item.install}")
    return lines
