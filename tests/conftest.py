"""Fixtures for all tests, and which tests a plain run leaves out."""

from __future__ import annotations

import pytest

from serving.devices import gpu_count

pytest_plugins = ["tests.system.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--heavy", action="store_true", help="run what `make test-all` runs, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    heavy = pytest.mark.skip(reason="takes long: `make test-all` runs it")
    gpu = pytest.mark.skip(reason="needs a CUDA device: `make gpu-check` runs it")
    for item in items:
        if item.get_closest_marker("heavy") and not config.getoption("--heavy"):
            item.add_marker(heavy)
        if item.get_closest_marker("gpu") and gpu_count() == 0:
            item.add_marker(gpu)
