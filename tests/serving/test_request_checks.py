"""What is refused before scheduling, in which words. Spec SCH-001..018."""

from __future__ import annotations

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.request_checks import RequestChecks
from tests.serving.loading import request_of, spec_of

BATCHED = """name: "m" max_batch_size: 8
input [{ name: "A" data_type: TYPE_FP32 dims: [2] }, { name: "B" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [2] }, { name: "Z" data_type: TYPE_FP32 dims: [2] }]
"""
OPTIONAL = BATCHED.replace("dims: [-1]", "dims: [-1] optional: true")
PLAIN = 'name: "m" input { name: "A" data_type: TYPE_FP32 dims: [2] }'
TEXT = 'name: "m" input { name: "A" data_type: TYPE_STRING dims: [2] }'


def rows(count: int, columns: int = 2) -> np.ndarray:
    return np.zeros((count, columns), np.float32)


def checked(text: str, inputs: dict, **fields) -> InferenceRequest:
    request = request_of(inputs, **fields)
    RequestChecks(spec_of(text)).check(request)
    return request


def refusal(text: str, inputs: dict, **fields) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        checked(text, inputs, **fields)
    return caught.value.message


def test_a_good_request_gets_its_batch_size():
    assert checked(BATCHED, {"A": rows(3), "B": rows(3, 7)}).batch_size == 3
    assert checked(PLAIN, {"A": rows(1)[0]}).batch_size == 1


def test_a_missing_input_is_named_with_what_was_sent():
    """SCH-001."""
    assert refusal(BATCHED, {"A": rows(1)}) == (
        "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing "
        "required input(s) ['B']."
    )


def test_with_optional_inputs_the_count_is_a_range():
    """SCH-001."""
    assert checked(OPTIONAL, {"A": rows(1)}).batch_size == 1
    assert "expected number of inputs between 1 and 2 but got 0 inputs" in refusal(OPTIONAL, {})
    assert "required input 'A' is missing" in refusal(OPTIONAL, {"B": rows(1)})


def test_an_unknown_input_is_refused_with_the_known_ones():
    """SCH-002."""
    assert refusal(PLAIN, {"NOPE": rows(1)[0]}) == (
        "unexpected inference input 'NOPE' for model 'm': it takes ['A']"
    )


def test_an_unknown_requested_output_is_refused():
    """SCH-004."""
    message = refusal(BATCHED, {"A": rows(1), "B": rows(1)}, outputs=("NOPE",))

    assert message == "unexpected inference output 'NOPE' for model 'm': it has ['Y', 'Z']"


def test_an_output_requested_twice_is_refused():
    """SCH-005."""
    message = refusal(BATCHED, {"A": rows(1), "B": rows(1)}, outputs=("Y", "Y"))

    assert message == "output 'Y' already exists in request for model 'm'"


def test_the_type_of_an_input_must_be_the_configs():
    """SCH-010."""
    assert refusal(PLAIN, {"A": np.zeros(2, np.float64)}) == (
        "inference input 'A' data-type is 'FP64', but model 'm' expects 'FP32'"
    )


def test_a_batching_model_needs_a_batch_dimension():
    """SCH-007."""
    text = PLAIN.replace('"m"', '"m" max_batch_size: 4')

    assert refusal(text, {"A": np.zeros((), np.float32)}) == (
        "input 'A' has no shape but model requires batch dimension for 'm'"
    )


def test_batch_sizes_must_agree():
    """SCH-008."""
    assert refusal(BATCHED, {"A": rows(1), "B": rows(2)}) == (
        "input 'B' batch size does not match other inputs for 'm': got 2, but 1 for 'A'"
    )


def test_a_batch_over_the_limit_is_refused_with_the_limit():
    """SCH-009."""
    message = refusal(BATCHED, {"A": rows(9), "B": rows(9)})

    assert "inference request batch-size must be <= 8 for 'm', got 9" in message


def test_a_batch_of_nothing_is_refused():
    assert "batch-size must be at least 1" in refusal(BATCHED, {"A": rows(0), "B": rows(0)})


def test_a_wrong_shape_shows_both_and_explains_the_batch():
    """SCH-011."""
    message = refusal(BATCHED, {"A": rows(1, 3), "B": rows(1)})

    assert "unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [1,3]." in message
    assert "max_batch_size is 8, so the first dimension" in message


def test_without_batching_the_shape_is_the_dims():
    """SCH-011."""
    assert refusal(PLAIN, {"A": rows(1)}) == (
        "unexpected shape for input 'A' for model 'm'. Expected [2], got [1,2]."
    )


def test_every_dimension_must_be_given():
    """SCH-012."""
    request = request_of({"A": rows(1)[0]})
    request.inputs["A"].shape = (-1,)

    with pytest.raises(InvalidArgumentError, match="All input dimensions should be specified"):
        RequestChecks(spec_of(PLAIN)).check(request)


def test_the_bytes_must_fill_the_shape():
    """SCH-013."""
    tensor = InputTensor("A", BY_NAME["FP32"], (2,), np.zeros(3, np.float32))

    with pytest.raises(InvalidArgumentError) as caught:
        RequestChecks(spec_of(PLAIN)).check(InferenceRequest("m", inputs={"A": tensor}))

    assert "input byte size mismatch for input 'A' for model 'm'. Expected 8, got 12" in str(
        caught.value
    )


def test_the_strings_must_fill_the_shape():
    """SCH-014."""
    tensor = InputTensor("A", BY_NAME["BYTES"], (2,), np.full(1, b"", dtype=np.object_))

    with pytest.raises(InvalidArgumentError, match="unexpected number of string elements 1"):
        RequestChecks(spec_of(TEXT)).check(InferenceRequest("m", inputs={"A": tensor}))


def test_custom_parameters_may_not_take_a_reserved_name():
    """SCH-017."""
    message = refusal(PLAIN, {"A": rows(1)[0]}, parameters={"triton_x": 1})

    assert "'triton_x'" in message
    assert "starts with 'triton_'" in message
    assert checked(PLAIN, {"A": rows(1)[0]}, parameters={"my": 1}).batch_size == 1


def test_zero_elements_fit_where_dims_is_any():
    """SCH-018."""
    assert checked(BATCHED, {"A": rows(2), "B": rows(2, 0)}).batch_size == 2
    assert "unexpected shape" in refusal(BATCHED, {"A": rows(2, 0), "B": rows(2)})


def test_reshape_gives_the_model_its_own_shape():
    text = PLAIN.replace("dims: [2]", "dims: [2, -1] reshape { shape: [-1, 2] }")

    request = checked(text, {"A": rows(2, 5)})

    assert request.inputs["A"].shape == request.inputs["A"].array.shape == (5, 2)


def test_reshape_to_a_scalar_keeps_the_batch():
    text = 'name: "m" max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [1]'

    request = checked(text + " reshape { } }", {"A": rows(3, 1)})

    assert request.inputs["A"].shape == (3,)


def test_requested_outputs_may_be_some_of_the_models():
    request = request_of({"A": rows(1), "B": rows(1)})
    request.requested_outputs = [RequestedOutput("Z")]

    RequestChecks(spec_of(BATCHED)).check(request)

    assert request.output_names == ["Z"]


SHAPE_TENSOR = """name: "m" max_batch_size: 8
input [{ name: "A" data_type: TYPE_FP32 dims: [2] },
       { name: "SIZE" data_type: TYPE_INT32 dims: [2] is_shape_tensor: true }]
"""


def test_a_shape_tensor_has_no_batch_axis_and_may_differ_in_its_first_dimension():
    """SCH-008."""
    size = np.array([5, 6], np.int32)

    assert checked(SHAPE_TENSOR, {"A": rows(3), "SIZE": size}).batch_size == 3
    assert "Expected [2], got [3,2]" in refusal(
        SHAPE_TENSOR, {"A": rows(3), "SIZE": np.zeros((3, 2), np.int32)}
    )
