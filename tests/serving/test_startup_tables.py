"""What is logged once a server has started (LOG-005)."""

from __future__ import annotations

import json
from pathlib import Path

from serving.options import ControlMode, ServerOptions
from serving.repository.states import IndexEntry
from serving.startup_tables import tables


def test_log_005_agents_backends_models_and_options_one_row_each() -> None:
    options = ServerOptions(
        (Path("/models"),),
        model_control_mode=ControlMode.EXPLICIT,
        backend_config={"": {"a": "1"}, "identity": {"b": "2"}},
    )
    index = [
        IndexEntry("good", 1, "READY", backend="identity"),
        IndexEntry("bad", None, "UNAVAILABLE", "it broke"),
    ]

    rows = [line.strip("| ").split(" | ") for line in tables(options, index)]
    cells = [tuple(cell.strip() for cell in row) for row in rows]

    headings = ["Repository Agent", "Backend", "Model", "Option"]
    assert [row[0] for row in cells if row[0] in headings] == headings
    assert ("checksum", "serving.repository.agents") in cells
    row = next(row for row in cells if row[0] == "identity")
    assert row[1] == "serving.backends.identity:IdentityBackend"
    assert {"a": "1", "b": "2"}.items() <= json.loads(row[2]).items()
    assert ("good", "1", "READY") in cells
    assert ("bad", "-", "UNAVAILABLE: it broke") in cells
    assert ("model_repository_path[0]", "/models") in cells
    assert ("model_control_mode", "MODE_EXPLICIT") in cells
