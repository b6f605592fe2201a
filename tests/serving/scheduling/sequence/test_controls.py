"""Control inputs of every kind. Spec SCH-016, SCH-060, SCH-061."""

from __future__ import annotations

import numpy as np
import pytest

from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest
from serving.scheduling.sequence.controls import ControlInputs
from tests.serving.loading import spec_of
from tests.serving.scheduling.sequence.sequencing import INPUT


def controls_of(*controls: str, max_batch_size: int = 4) -> ControlInputs:
    text = " ".join(
        f'control_input {{ name: "{chr(65 + index)}" control {{ {item} }} }}'
        for index, item in enumerate(controls)
    )
    return ControlInputs(
        spec_of(
            f'name: "m" max_batch_size: {max_batch_size} {INPUT} sequence_batching {{ {text} }}'
        )
    )


def applied(controls: ControlInputs, **fields: object) -> dict[str, np.ndarray]:
    request = InferenceRequest("m", **fields)
    controls.apply(request)
    for tensor in request.inputs.values():
        assert tensor.shape == tensor.array.shape
        assert tensor.datatype.dtype == tensor.array.dtype
    return {name: tensor.array for name, tensor in request.inputs.items()}


def test_start_end_and_ready_tell_where_a_request_stands():
    """SCH-060."""
    controls = controls_of(
        "kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1]",
        "kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1]",
        "kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1]",
    )

    values = [
        [int(array[0, 0]) for array in applied(controls, **flags).values()]
        for flags in (
            {"sequence_start": True},
            {},
            {"sequence_end": True},
            {"sequence_start": True, "sequence_end": True},
        )
    ]

    assert values == [[1, 0, 1], [0, 0, 1], [0, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    ("pair", "false", "true", "dtype"),
    [
        ("int32_false_true: [7, -3]", 7, -3, np.int32),
        ("fp32_false_true: [0.25, 1.5]", 0.25, 1.5, np.float32),
        ("bool_false_true: [true, false]", True, False, np.bool_),
    ],
)
def test_a_pair_may_be_int32_fp32_or_bool(pair, false, true, dtype):
    """SCH-060."""
    controls = controls_of(f"kind: CONTROL_SEQUENCE_START {pair}")

    off = applied(controls)["A"]
    on = applied(controls, sequence_start=True)["A"]

    assert (off.dtype, on.dtype) == (dtype, dtype)
    assert (off.item(), on.item()) == (false, true)


@pytest.mark.parametrize(("max_batch_size", "shape"), [(4, (1, 1)), (0, (1,))])
def test_a_control_has_one_element_and_a_batch_axis_where_the_model_has_one(max_batch_size, shape):
    """SCH-060."""
    controls = controls_of(
        "kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1]",
        "kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64",
        max_batch_size=max_batch_size,
    )

    assert {array.shape for array in applied(controls, correlation_id=5).values()} == {shape}


@pytest.mark.parametrize(
    ("datatype", "correlation_id", "value"),
    [
        ("TYPE_UINT64", 2**64 - 1, 2**64 - 1),
        ("TYPE_INT64", 2**63 + 5, -(2**63) + 5),
        ("TYPE_UINT32", 2**33 + 7, 7),
        ("TYPE_INT32", 2**32 - 1, -1),
        ("TYPE_STRING", "abc", b"abc"),
    ],
)
def test_the_id_has_the_type_that_the_model_wants_and_32_bits_are_the_low_ones(
    datatype, correlation_id, value
):
    """SCH-061."""
    controls = controls_of(f"kind: CONTROL_SEQUENCE_CORRID data_type: {datatype}")

    assert applied(controls, correlation_id=correlation_id)["A"].item() == value


@pytest.mark.parametrize(
    ("datatype", "correlation_id", "wanted"),
    [("TYPE_UINT64", "abc", "a number"), ("TYPE_STRING", 5, "a string")],
)
def test_an_id_of_the_other_type_is_refused(datatype, correlation_id, wanted):
    """SCH-016."""
    controls = controls_of(f"kind: CONTROL_SEQUENCE_CORRID data_type: {datatype}")

    with pytest.raises(InvalidArgumentError, match=f"correlation ID .* must be {wanted}") as caught:
        controls.check_id(correlation_id)

    assert datatype in caught.value.message


@pytest.mark.parametrize("correlation_id", ["abc", 5])
def test_a_model_that_does_not_look_at_the_id_takes_both_types(correlation_id):
    """SCH-016, SCH-050."""
    controls_of("kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1]").check_id(correlation_id)


@pytest.mark.parametrize(("datatype", "value"), [("TYPE_UINT32", 0), ("TYPE_STRING", b"")])
def test_a_filler_belongs_to_no_sequence(datatype, value):
    """SCH-054, SCH-061."""
    controls = controls_of(
        "kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1]",
        f"kind: CONTROL_SEQUENCE_CORRID data_type: {datatype}",
    )

    filler = controls.filler(
        InferenceRequest("m", 1, "real", correlation_id=5, sequence_start=True)
    )

    assert [tensor.array.item() for tensor in filler.inputs.values()] == [0, value]
    assert (filler.id, filler.sequence_start) == ("", False)
