"""What is logged once the server has started: repository agents, backends, models, options.

One record a row, as a log collector wants it. Pure functions. Source: spec LOG-005.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import entry_points

from serving import metadata
from serving.backends.registry import BackendRegistry
from serving.options import ServerOptions
from serving.repository import agents
from serving.repository.states import IndexEntry

Row = Sequence[str]


def tables(options: ServerOptions, index: Collection[IndexEntry]) -> list[str]:
    """The rows of all four tables."""
    lines: list[str] = []
    for rows in (
        _agents(),
        _backends(options, {entry.backend for entry in index if entry.backend}),
        _models(index),
        _options(options),
    ):
        lines += _aligned(rows)
    return lines


def _agents() -> list[Row]:
    found = {item.name: item.value for item in entry_points(group=agents.ENTRY_POINT_GROUP)}
    built_in = {"checksum": f"{agents.__name__}"}
    return [("Repository Agent", "Path"), *sorted((built_in | found).items())]


def _backends(options: ServerOptions, used: Iterable[str]) -> list[Row]:
    registry = BackendRegistry.of(options)
    rows: list[Row] = [("Backend", "Path", "Config")]
    for name in sorted(used):
        rows.append((name, registry.location(name), json.dumps(registry.config_of(name))))
    return rows


def _models(index: Iterable[IndexEntry]) -> list[Row]:
    rows: list[Row] = [("Model", "Version", "Status")]
    for entry in index:
        version = "-" if entry.version is None else str(entry.version)
        status = entry.state or "not loaded"
        rows.append((entry.name, version, f"{status}: {entry.reason}" if entry.reason else status))
    return rows


def _options(options: ServerOptions) -> list[Row]:
    """Triton's names."""
    about = metadata.of_server(options.server_id)
    given = {
        "server_id": options.server_id,
        "server_version": about["version"],
        "server_extensions": " ".join(about["extensions"]),
        **{
            f"model_repository_path[{number}]": str(root)
            for number, root in enumerate(options.model_repositories)
        },
        "model_control_mode": f"MODE_{options.model_control_mode.name}",
        "strict_model_config": int(not options.auto_complete_config),
        "model_config_name": options.model_config_name,
        "rate_limit": "EXECUTION_COUNT" if options.rate_limit else "OFF",
        "strict_readiness": int(options.strict_readiness),
        "exit_timeout": f"{options.exit_timeout_secs:g}",
        "cache_enabled": int(options.cache is not None),
    }
    return [("Option", "Value"), *((name, str(value)) for name, value in given.items())]


def _aligned(rows: Sequence[Row]) -> list[str]:
    """The last column is as wide as its text."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["| " + " | ".join([*map(str.ljust, row[:-1], widths), row[-1]]) for row in rows]
