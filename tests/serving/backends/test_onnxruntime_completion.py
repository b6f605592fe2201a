"""What the ONNX Runtime backend fills into a config from the model file. AUT-03."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from serving.backends.onnxruntime.backend import OnnxRuntimeBackend
from serving.errors import InvalidArgumentError, ServingError
from tests.serving.backends import onnx_files
from tests.serving.loading import context_of, load, outputs_of


def completed(text, directory, **backend_config):
    context = context_of(text, directory, backend_config=backend_config)
    OnnxRuntimeBackend().auto_complete(context)
    return context.config


def test_auto_complete_reads_names_types_and_shapes_and_turns_batching_on(tmp_path):
    onnx_files.write_add_sub(tmp_path)

    config = completed('name: "m" backend: "onnxruntime"', tmp_path)

    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert [(item.name, list(item.dims)) for item in config.input] == [("A", [4]), ("B", [4])]
    assert [item.name for item in config.output] == ["SUM", "DIFFERENCE"]


def test_auto_complete_takes_the_servers_default_batch_size(tmp_path):
    onnx_files.write_identity(tmp_path)

    config = completed("", tmp_path, **{"default-max-batch-size": "1"})

    assert config.max_batch_size == 1
    assert config.WhichOneof("scheduling_choice") is None


@pytest.mark.parametrize("number", ["\u00b2", "-1", "4096000000", "1e3"])
def test_a_default_batch_size_that_cannot_be_is_named(tmp_path, number):
    onnx_files.write_identity(tmp_path)

    with pytest.raises(InvalidArgumentError, match="it must be a whole number from 0 to 999999999"):
        completed("", tmp_path, **{"default-max-batch-size": number})


def test_auto_complete_without_a_dynamic_first_dimension_leaves_batching_off(tmp_path):
    onnx_files.write_identity(tmp_path, shape=(1, 4))

    config = completed("", tmp_path)

    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [1, 4]


def test_auto_complete_makes_a_scalar_one_element_without_a_reshape(tmp_path):
    onnx_files.write_identity(tmp_path, shape=())

    config = completed("", tmp_path)

    assert list(config.input[0].dims) == [1]
    assert not config.input[0].HasField("reshape")


def test_auto_complete_keeps_what_the_config_gives(tmp_path):
    onnx_files.write_add_sub(tmp_path)

    config = completed('output { name: "SUM" data_type: TYPE_FP32 dims: [4] }', tmp_path)

    assert [item.name for item in config.output] == ["SUM"]
    assert len(config.input) == 2


def test_auto_complete_refuses_a_batch_size_that_the_model_cannot_have(tmp_path):
    onnx_files.write_identity(tmp_path, shape=(1, 4))

    with pytest.raises(ServingError, match=r"'X' has shape \[1, 4\].*set max_batch_size to 0"):
        completed('name: "m" max_batch_size: 4', tmp_path)


def test_auto_completed_scalar_model_serves(tmp_path):
    onnx_files.write_identity(tmp_path, shape=("batch",))
    config = completed('name: "m" backend: "onnxruntime"', tmp_path)

    async def serve():
        model = await load(str(config), tmp_path)
        outputs = await outputs_of(model, {"X": np.array([[1], [2]], np.float32)})
        await model.drain_and_close()
        return outputs["Y"].tolist()

    assert asyncio.run(serve()) == [[1.0], [2.0]]


def test_auto_complete_asks_for_what_the_file_does_not_say(tmp_path):
    onnx_files.write_identity(tmp_path, shape=None)

    with pytest.raises(ServingError, match="does not say the shape of input 'X': give `input`"):
        completed('name: "m"', tmp_path)
