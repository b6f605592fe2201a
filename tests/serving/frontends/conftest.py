from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests import fake_cuda
from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What reads sockets is tested on asyncio's own loop and on the one that serves."""
    if "test_http_server" in item.nodeid or "frontends/http2/" in item.nodeid:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


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


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that lets clients register shared memory; in place of a GPU's it finds files."""
    repository = write_repository(tmp_path_factory.mktemp("repository"))
    driver = fake_cuda.build(tmp_path_factory.mktemp("cuda"))
    arguments = (
        f"--model-repository={repository}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--allow-client-shm=true",
    )
    environment = {"LD_LIBRARY_PATH": str(driver.parent)}
    with ServerProcess(arguments, environment=environment) as server:
        yield server
