"""One running Conch with the demo models for all tests that need the whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.conch import ROOT, RunningConch


@pytest.fixture(scope="session")
def conch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConch]:
    running = RunningConch(tmp_path_factory.mktemp("conch"), ROOT / "examples" / "model_repository")
    try:
        running.wait_until_up()
        yield running
    finally:
        running.stop()
