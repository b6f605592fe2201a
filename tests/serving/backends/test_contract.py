"""The conformance suite over the backends that every installation has."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from tests.serving.backends import onnx_files
from tests.serving.backends.contract import BackendContract, Subject

IO = """
max_batch_size: 8
input [{ name: "A" data_type: TYPE_FP32 dims: [-1] },
       { name: "B" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "SUM" data_type: TYPE_FP32 dims: [-1] },
        { name: "DIFFERENCE" data_type: TYPE_FP32 dims: [-1] }]
"""
PYTHON = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        for name in "A", "B":
            config.add_input({"name": name, "data_type": "TYPE_FP32", "dims": [-1]})
        for name in "SUM", "DIFFERENCE":
            config.add_output({"name": name, "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB")
        outputs = {"SUM": a + b, "DIFFERENCE": a - b}
        wanted = request.requested_output_names()
        return pb_utils.InferenceResponse([pb_utils.Tensor(n, outputs[n]) for n in wanted])
"""


def rows(count: int) -> dict[str, np.ndarray]:
    a = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
    return {"A": a * 3, "B": a + 1}


def add_sub(sent: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"SUM": sent["A"] + sent["B"], "DIFFERENCE": sent["A"] - sent["B"]}


class TestOnnxRuntime(BackendContract):
    backend = "onnxruntime"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return Subject(
            config='backend: "onnxruntime"' + IO,
            write=lambda folder: onnx_files.write_add_sub(folder.parent, ("batch", "width")),
            inputs=rows,
            expected=add_sub,
            misfit=lambda: rows(1) | {"B": np.ones((1, 3), np.float32)},
            runtime_module="onnxruntime",
        )


class TestIdentity(BackendContract):
    backend = "identity"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return Subject(
            config='backend: "identity"' + IO,
            write=lambda folder: None,
            inputs=rows,
            expected=lambda sent: {"SUM": sent["A"], "DIFFERENCE": sent["B"]},
            completes=False,
            has_file=False,
        )


class TestPython(BackendContract):
    backend = "python"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return Subject(
            config='backend: "python"' + IO,
            write=lambda folder: (folder / "model.py").write_text(textwrap.dedent(PYTHON)),
            inputs=rows,
            expected=add_sub,
        )
