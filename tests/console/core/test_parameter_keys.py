"""The editor completes keys of parameters that the core reads, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

import console.catalog
import serving
from console.core.config_schema import completion_schema
from console.core.parameter_keys import EVERYWHERE, KEYS, keys_by_name
from serving.config.torch_parameters import _OF_MODULES, _OF_PYTHON
from tests.console.fakes import FakeWorkerClient


@pytest.fixture(scope="module")
def sources() -> str:
    folders = (Path(str(module.__file__)).parent for module in (serving, console.catalog))
    return "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))


@pytest.mark.parametrize(
    "key", sorted({*EVERYWHERE, *(key for keys in KEYS.values() for key in keys)})
)
def test_every_key_is_read_by_somebody(sources: str, key: str) -> None:
    # Limits of processes are written with dashes there: they are backend config, too.
    assert f'"{key}"' in sources or f'"{key.replace("_", "-")}"' in sources


def test_all_that_is_checked_for_pytorch_is_offered() -> None:
    older_spelling = {"CACHE_CLEANING_ENABLED"}

    assert (_OF_MODULES | _OF_PYTHON) - older_spelling <= set(KEYS["pytorch"])


def test_a_platform_has_the_keys_of_its_backend() -> None:
    keys = keys_by_name()

    assert keys["onnxruntime_onnx"] == keys["onnxruntime"]
    assert "intra_op_thread_count" in keys["onnxruntime"]
    assert keys[""] == sorted(EVERYWHERE)


def test_the_schema_of_the_editor_has_them(fake_workers: FakeWorkerClient) -> None:
    assert completion_schema()["parameters"] == keys_by_name()
