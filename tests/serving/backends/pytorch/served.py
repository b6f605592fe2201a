"""Configs of PyTorch models, and models that are loaded in this process."""

from __future__ import annotations

import numpy as np
import pytest

from serving.errors import ServingError
from tests.serving.backends.pytorch import modules
from tests.serving.loading import infer, load, request_of


def io(kind, *names, datatype="FP32", dims="-1"):
    return "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{dims}] }}\n' for name in names
    )


def config(inputs, outputs, extra="", batch=8):
    head = f'name: "m" backend: "pytorch" max_batch_size: {batch}\n'
    return head + io("input", *inputs) + io("output", *outputs) + extra


def row(*values):
    return np.array([values], np.float32)


def parameter(name, value):
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


async def served(directory, module, text, **options):
    modules.write(module, directory)
    return await load(text, directory, **options)


async def refused(directory, module, text):
    with pytest.raises(ServingError) as caught:
        await served(directory, module, text)
    assert "\n" not in caught.value.message
    return caught.value


async def failure(model, inputs):
    answer = await infer(model, request_of(inputs))
    assert answer.error is not None
    return answer.error
