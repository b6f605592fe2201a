"""TorchScript under the contract of all backends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.backends.pytorch import modules

CONFIG = """backend: "pytorch" max_batch_size: 8
input [{ name: "left" data_type: TYPE_FP32 dims: [-1] },
       { name: "right" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "SUM__0" data_type: TYPE_FP32 dims: [-1] },
        { name: "DIFFERENCE__1" data_type: TYPE_FP32 dims: [-1] }]
"""


def rows(count):
    left = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    return {"left": left, "right": left * 10 + 1}


def answers(sent):
    left, right = sent["left"], sent["right"]
    return {"SUM__0": left + right, "DIFFERENCE__1": left - right}


def misfit():
    return {"left": np.ones((1, 3), np.float32), "right": np.ones((1, 2), np.float32)}


class TestTorchScript(BackendContract):
    backend = "pytorch"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return Subject(
            config=CONFIG,
            write=lambda version: torch.jit.script(modules.Sums()).save(str(version / "model.pt")),
            inputs=rows,
            expected=answers,
            completes=False,
            misfit=misfit,
            runtime_module="torch",
        )
