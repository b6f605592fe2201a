"""Backends whose runtimes are not installed by default (REP-028, REP-030, REP-031): their models
are checked in full, and refused with the name of what is missing when they load.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from serving.backends.installed import RUNTIMES
from serving.config.check import check_model
from serving.config.findings import errors_of
from serving.errors import ServingError

IO = """
input { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
"""
TENSORRTLLM = """
backend: "tensorrtllm"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }
parameters { key: "gpt_model_path" value { string_value: "engine" } }
"""
ROWS = [
    pytest.param("dali", f'backend: "dali" max_batch_size: 8 {IO}', "model.dali", id="REP-028"),
    pytest.param(
        "vllm",
        'backend: "vllm" instance_group { count: 1 kind: KIND_MODEL }',
        "model.json",
        id="REP-030",
    ),
    pytest.param("tensorrtllm", TENSORRTLLM, "", id="REP-031"),
]


def write(root: Path, config: str, file: str) -> Path:
    model = root / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    if file:
        (model / "1" / file).write_text("{}")
    return model


@pytest.mark.parametrize(("backend", "config", "file"), ROWS)
def test_config_of_such_a_model_is_sound(tmp_path, backend, config, file):
    assert errors_of(check_model(write(tmp_path, config, file)).findings) == []


@pytest.mark.parametrize(("backend", "config", "file"), ROWS)
async def test_its_load_names_the_backend_that_is_missing(serve, tmp_path, backend, config, file):
    write(tmp_path, config, file)
    server = await serve()
    runtime = RUNTIMES[backend]
    if find_spec(runtime.module.partition(".")[0]) is not None:
        pytest.skip(f"{runtime.module} is installed")
    with pytest.raises(
        ServingError, match=f"the {backend} backend cannot be used, its package .* pip install"
    ):
        await server.load_model("m")


@pytest.mark.parametrize("file", ["model.dali", "model.json"])
async def test_its_file_alone_does_not_tell_the_backend(serve, tmp_path, file):
    write(tmp_path, IO, file)
    server = await serve()
    with pytest.raises(ServingError, match="names no backend"):
        await server.load_model("m")


async def test_rep_031_ensemble_over_such_models_tells_which_part_is_missing(serve, tmp_path):
    write(tmp_path, TENSORRTLLM, "").rename(tmp_path / "tensorrt_llm")
    ensemble = tmp_path / "ensemble"
    (ensemble / "1").mkdir(parents=True)
    (ensemble / "config.pbtxt").write_text(
        """
        platform: "ensemble" max_batch_size: 0
        input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }
        output { name: "out" data_type: TYPE_INT32 dims: [ -1, -1 ] }
        ensemble_scheduling { step {
          model_name: "tensorrt_llm" model_version: -1
          input_map { key: "input_ids" value: "ids" } output_map { key: "output_ids" value: "out" }
        } }
        """
    )
    server = await serve()
    with pytest.raises(
        ServingError, match="it needs model 'tensorrt_llm', which does not serve.*tensorrtllm"
    ):
        await server.load_model("ensemble")


async def test_rep_067_one_call_loads_one_model(serve, tmp_path):
    for name in ("a", "b"):
        write(tmp_path, f'backend: "identity" {IO}', "").rename(tmp_path / name)
    server = await serve()
    with pytest.raises(ServingError, match="failed to load 'a,b'.*no directory 'a,b'"):
        await server.load_model("a,b")
    assert [row.state for row in server.repository_index()] == ["", ""]
