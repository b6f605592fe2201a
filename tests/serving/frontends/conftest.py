from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server process for all tests that only talk to it."""
    repository = write_repository(tmp_path_factory.mktemp("repository"))
    with ServerProcess(
        (
            f"--model-repository={repository}",
            "--model-control-mode=explicit",
            "--load-model=*",
        )
    ) as server:
        yield server
