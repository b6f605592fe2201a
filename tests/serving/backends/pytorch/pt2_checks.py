"""What holds of a PT2 archive, exported or compiled; and small things that its tests share."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from serving.errors import ErrorCode, ServingError
from tests.serving.backends.pytorch.archives import (
    ACCUMULATE_CONFIG,
    EXAMPLE_CONFIG,
    FIXED_CONFIG,
    JOINED_CONFIG,
    NET_CONFIG,
    ORDINAL_CONFIG,
    SEED_INPUTS,
    SEED_OUTPUTS,
)
from tests.serving.loading import infer, load, outputs_of, request_of


async def refusal(text, directory):
    with pytest.raises(ServingError) as caught:
        await load(text, directory)
    message = caught.value.message
    assert "\n" not in message
    assert str(directory) not in message
    return message


def ones(rows):
    return {
        "INPUT__0": np.ones((rows, 4), np.float32),
        "INPUT__1": np.full((rows, 2), 3, np.float32),
    }


def example_inputs(names):
    return {name: np.full((1, 16), 2**index, np.float16) for index, name in enumerate(names)}


async def check_example(directory):
    """By forward names and by ordinal names: what the documentation says of each."""
    model = await load(EXAMPLE_CONFIG, directory)
    by_name = await outputs_of(model, example_inputs(SEED_INPUTS))
    await model.drain_and_close()
    expected = dict(zip(SEED_OUTPUTS, [3, -1, 1, 2, 4, 8, 16, 32], strict=True))
    assert {name: float(array[0, 0]) for name, array in by_name.items()} == expected

    model = await load(ORDINAL_CONFIG, directory)
    by_index = await outputs_of(model, example_inputs([f"INPUT__{i}" for i in range(6)]))
    await model.drain_and_close()
    for index, name in enumerate(SEED_OUTPUTS):
        np.testing.assert_array_equal(by_index[f"OUTPUT__{index}"], by_name[name])


async def check_batches(directory):
    """From one row to the most, and no more."""
    model = await load(NET_CONFIG, directory)
    for rows in (1, 2, 8):
        outputs = await outputs_of(model, ones(rows))
        np.testing.assert_allclose(outputs["OUTPUT__0"], [[1.1, 1.7, 4.8]] * rows, rtol=1e-5)
        np.testing.assert_array_equal(outputs["OUTPUT__1"], np.full((rows, 2), 6))
    answer = await infer_error(model, ones(9))
    assert answer.message.startswith("inference request batch-size must be <= 8")
    await model.drain_and_close()


async def infer_error(model, inputs):
    answer = await infer(model, request_of(inputs))
    assert answer.error is not None
    return answer.error


async def check_fixed_batch(directory, caplog):
    with caplog.at_level(logging.WARNING):
        model = await load(FIXED_CONFIG, directory)
    assert "1/model.pt2 was exported for batches of exactly 2 (input 'ARGS[0]')" in caplog.text
    outputs = await outputs_of(model, {"ARGS[0]": np.ones((2, 4), np.float32)})
    assert outputs["RESULT"].tolist() == [[2] * 4] * 2
    for rows in (1, 3):
        error = await infer_error(model, {"ARGS[0]": np.ones((rows, 4), np.float32)})
        assert error.code is ErrorCode.INVALID_ARG
        assert f"input 'ARGS[0]' has shape [{rows}, 4]" in error.message
        assert "dimension 0 must be 2; it serves batches of that size only" in error.message
    await model.drain_and_close()


async def check_joined_sizes(directory):
    """Where one size follows from another, a request that does not keep to it is refused."""
    model = await load(JOINED_CONFIG, directory)

    def sent(first, second):
        return {"ARGS[0]": np.ones(first, np.float32), "ARGS[1]": np.ones(second, np.float32)}

    for size in (1, 5):
        outputs = await outputs_of(model, sent(size, size))
        assert outputs["RESULT"].tolist() == [2] * size
    for first, second in ((9, 3), (3, 9), (1, 3), (3, 1)):
        error = await infer_error(model, sent(first, second))
        assert error.code is ErrorCode.INVALID_ARG
        assert "model 'm' refused the request: " in error.message
    await model.drain_and_close()


async def check_sequence(directory):
    """Start, correlation ID and state come as tensors, the new state goes as one."""
    model = await load(ACCUMULATE_CONFIG, directory)
    seen = []
    for sequence, value, start, end in [
        (7, 1, True, False),
        (7, 2, False, False),
        (9, 5, True, False),
        (7, 4, False, True),
        (7, 8, True, True),
    ]:
        outputs = await outputs_of(
            model,
            {"ARGS[0]": np.array([[value]], np.float32)},
            correlation_id=sequence,
            sequence_start=start,
            sequence_end=end,
        )
        seen.append(float(outputs["RESULT[1]"][0, 0]))
    assert seen == [7001, 7003, 9005, 7007, 7008]
    await model.drain_and_close()


async def check_shared_weights(directory):
    """Two instances, one copy of the weights."""
    text = NET_CONFIG + (
        'parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }'
        "instance_group { count: 2 kind: KIND_CPU }"
    )
    model = await load(text, directory)

    for _ in range(4):
        outputs = await outputs_of(model, ones(1))
        np.testing.assert_allclose(outputs["OUTPUT__0"], [[1.1, 1.7, 4.8]], rtol=1e-5)
    await model.drain_and_close()
