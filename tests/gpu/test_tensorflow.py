"""The tensorflow backend on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from serving.backends.tensorflow import TensorFlowBackend
from tests.serving.loading import context_of, load, outputs_of

tf = pytest.importorskip(
    "tensorflow", reason="needs tensorflow: pip install 'tensorflow[and-cuda]'"
)
pytestmark = pytest.mark.gpu

CONFIG = """name: "m" backend: "tensorflow" platform: "tensorflow_graphdef" max_batch_size: 8
input { name: "A" data_type: TYPE_FP32 dims: [4] }
output { name: "SUM" data_type: TYPE_FP32 dims: [4] }
instance_group { count: 1 kind: KIND_GPU gpus: [0] }
"""


@pytest.fixture
def written(tmp_path):
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("this tensorflow uses no GPU: pip install 'tensorflow[and-cuda]'")
    with tf.Graph().as_default() as graph:
        given = tf.compat.v1.placeholder(tf.float32, [None, 4], "A")
        tf.add(given, given, "SUM")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.graphdef").write_bytes(graph.as_graph_def().SerializeToString())
    return tmp_path


def test_operations_are_placed_on_the_gpu_of_the_instance(written):
    """TF-01: KIND_GPU."""
    model = TensorFlowBackend().load(context_of(CONFIG, written))

    (session,) = model._sessions
    assert {item.device for item in session.graph.get_operations()} == {"/device:GPU:0"}
    model.unload()


async def test_a_model_on_the_gpu_answers(written):
    """TF-01."""
    model = await load(CONFIG, written, gpu_count=1)
    sent = np.arange(8, dtype=np.float32).reshape(2, 4)

    outputs = await outputs_of(model, {"A": sent})

    np.testing.assert_array_equal(outputs["SUM"], 2 * sent)
    await model.drain_and_close()
