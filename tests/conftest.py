"""Fixtures for all tests, which tests a plain run leaves out, and how two processes share them."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

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
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    # The longest group first, beside which the others fit.
    items.sort(key=lambda item: _group(item) != _WHOLE)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What there is by now stays: tests that collect garbage need not look through it each time."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Packed bytes hold the time: every process would name the test differently."""
    return argname if isinstance(val, bytes) and len(val) > 16 else None


_WHOLE = "the whole of Conch"


def _group(item: pytest.Item) -> str:
    """Tests that one process runs: those with the running Conch, and else those of one file."""
    return _WHOLE if "conch" in getattr(item, "fixturenames", ()) else str(item.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports go from process to process as UTF-8, and logs of hostile names are none."""
    report = yield
    report.sections = [(name, _sendable(text)) for name, text in report.sections]
    return report


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
