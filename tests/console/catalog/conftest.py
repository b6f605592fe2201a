"""A repository with real models on disk, and one worker that serves some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.serving.backends.onnx_files import FLOAT, value, write
from workers.messages import ModelDescription

CONFIG = """\
# Gives back what it gets.
name: "echo"
backend: "onnxruntime"
max_batch_size: 8
dynamic_batching { }
"""


@pytest.fixture
def repository(tmp_path: Path, settings: Any) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    settings.CONCH_MODEL_REPOSITORY = root
    return root


def add_model(
    root: Path, name: str = "echo", *, versions: Any = (1, 2), text: str = CONFIG
) -> Path:
    directory = root / name
    for version in versions:
        write(
            directory,
            [value("x", FLOAT, ("batch", 2))],
            [value("y", FLOAT, ("batch", 2))],
            [helper.make_node("Identity", ["x"], ["y"])],
            version=version,
        )
    directory.mkdir(exist_ok=True)
    (directory / "config.pbtxt").write_text(text.replace("echo", name), encoding="utf-8")
    return directory


@pytest.fixture
def echo(repository: Path) -> Path:
    return add_model(repository)


@pytest.fixture
def served(echo: Path, fake_workers: FakeWorkerClient) -> FakeWorkerClient:
    """`echo` version 2 is ready on gpu-1."""
    fake_workers.infos = [make_worker("gpu-1", models=[make_model("echo", "2")])]
    fake_workers.descriptions["echo"] = ModelDescription(
        metadata={
            "name": "echo",
            "versions": ["2"],
            "platform": "onnxruntime_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
        },
        config={
            "name": "echo",
            "max_batch_size": 8,
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
            "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [2]}],
        },
        statistics={"model_stats": []},
    )
    return fake_workers
