"""The module `triton_python_backend_utils` as models see it, without a process around it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from serving.backends.python import pb_utils


def test_every_public_name_is_there():
    assert all(hasattr(pb_utils, name) for name in pb_utils.__all__)
    assert dir(pb_utils) == sorted(pb_utils.__all__)


@pytest.mark.parametrize(
    ("name", "numpy_type", "number"),
    [
        ("TYPE_BOOL", np.bool_, 1),
        ("TYPE_UINT8", np.uint8, 2),
        ("TYPE_INT64", np.int64, 9),
        ("TYPE_FP16", np.float16, 10),
        ("TYPE_FP32", np.float32, 11),
        ("TYPE_STRING", np.object_, 13),
    ],
)
def test_types_convert_both_ways(name: str, numpy_type: type, number: int):
    assert pb_utils.triton_string_to_numpy(name) is numpy_type
    assert pb_utils.numpy_to_triton_type(numpy_type) == number
    assert pb_utils.triton_to_numpy_type(number) is numpy_type


def test_types_without_a_counterpart_are_refused():
    assert pb_utils.triton_string_to_numpy("TYPE_BF16") is None
    with pytest.raises(ValueError, match="complex128 has no Triton data type"):
        pb_utils.numpy_to_triton_type(np.complex128)
    with pytest.raises(ValueError, match="99 has no numpy type"):
        pb_utils.triton_to_numpy_type(99)


def test_byte_tensors_encode_and_decode():
    array = np.array([[b"a", b""], [b"xyz", "ü"]], dtype=object)

    encoded = pb_utils.serialize_byte_tensor(array)

    assert encoded is not None
    decoded = pb_utils.deserialize_bytes_tensor(encoded.item())
    assert decoded.tolist() == [b"a", b"", b"xyz", "ü".encode()]
    assert pb_utils.serialize_byte_tensor(np.array([], dtype=object)) is None


def test_a_tensor_knows_its_name_shape_and_type():
    tensor = pb_utils.Tensor("T", np.zeros((2, 3), np.int8))

    assert (tensor.name(), tensor.shape(), tensor.triton_dtype()) == ("T", (2, 3), 6)
    assert tensor.is_cpu()
    assert repr(tensor) == "<Tensor T INT8 [2, 3]>"


@pytest.mark.parametrize("array", [np.array([b"a"]), np.array(["a"]), np.array([b"a"], object)])
def test_strings_of_any_kind_are_bytes(array: np.ndarray):
    assert pb_utils.Tensor("T", array).triton_dtype() == 13


def test_bad_tensors_are_refused():
    with pytest.raises(pb_utils.TritonModelException, match="must not be empty"):
        pb_utils.Tensor("", np.zeros(1))
    with pytest.raises(TypeError, match="must be made of a numpy array, not of list"):
        pb_utils.Tensor("T", [1])  # type: ignore[arg-type]
    with pytest.raises(pb_utils.TritonModelException, match="complex64 has no Triton data type"):
        pb_utils.Tensor("T", np.zeros(1, np.complex64))


def test_big_endian_arrays_are_turned_round():
    tensor = pb_utils.Tensor("T", np.array([1, 2], ">i4"))

    assert tensor.as_numpy().dtype == np.int32
    assert tensor.as_numpy().tolist() == [1, 2]


def test_dlpack_shares_memory_both_ways():
    array = np.arange(4, dtype=np.float32)

    view = np.from_dlpack(pb_utils.Tensor("T", array))
    back = pb_utils.Tensor.from_dlpack("U", view).as_numpy()

    array[0] = 9
    assert view[0] == back[0] == 9


def test_bfloat16_is_for_dlpack_only():
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    tensor = pb_utils.Tensor("T", array)

    with pytest.raises(pb_utils.TritonModelException, match="BF16"):
        tensor.as_numpy()
    again = pb_utils.Tensor.from_dlpack("U", tensor.to_dlpack())
    assert again.triton_dtype() == 14
    assert again._core_array.tolist() == [1.5, -2]


def test_what_dlpack_cannot_carry_is_refused():
    with pytest.raises(pb_utils.TritonModelException, match="BYTES"):
        pb_utils.Tensor("T", np.array([b"a"], object)).to_dlpack()
    with pytest.raises(pb_utils.TritonModelException, match="not contiguous"):
        pb_utils.Tensor.from_dlpack("T", np.zeros((3, 4), np.float32).T)
    with pytest.raises(pb_utils.TritonModelException, match="expected a DLPack capsule"):
        pb_utils.Tensor.from_dlpack("T", 5)


def test_an_unknown_error_code_names_those_that_exist():
    with pytest.raises(
        AttributeError, match=r"c_python_backend_utils\.TritonError.*NOSUCH.*INVALID_ARG"
    ):
        _ = pb_utils.TritonError.NOSUCH


def test_an_error_has_message_and_code():
    error = pb_utils.TritonError("text", pb_utils.TritonError.NOT_FOUND)

    assert (error.message(), error.code()) == ("text", pb_utils.TritonError.NOT_FOUND)
    assert pb_utils.TritonError("text").code() == pb_utils.TritonError.INTERNAL
    with pytest.raises(TypeError, match="99 is no code"):
        pb_utils.TritonError("text", 99)


def test_a_response_checks_what_it_is_made_of():
    with pytest.raises(TypeError, match=r"must hold pb_utils\.Tensor objects, found int"):
        pb_utils.InferenceResponse([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"must be a pb_utils\.TritonError, not str"):
        pb_utils.InferenceResponse([], error="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parameter 'a' must be bool, int, str or float, not list"):
        pb_utils.InferenceResponse([], parameters={"a": []})  # type: ignore[dict-item]


def test_a_request_of_the_models_own_can_be_built_and_read():
    request = pb_utils.InferenceRequest(
        model_name="other",
        requested_output_names=["O"],
        inputs=[pb_utils.Tensor("I", np.zeros(1))],
        request_id="7",
        correlation_id="c",
        flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
        timeout=5,
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
    )

    assert (request.model_name(), request.model_version()) == ("other", -1)
    assert (request.request_id(), request.correlation_id(), request.flags()) == ("7", "c", 1)
    assert pb_utils.get_input_tensor_by_name(request, "I") is not None
    with pytest.raises(TypeError, match="needs the argument model_name"):
        pb_utils.InferenceRequest(requested_output_names=["O"], inputs=[])


def test_config_lookups():
    config = {
        "input": [{"name": "A"}],
        "output": [{"name": "B"}],
        "model_transaction_policy": {"decoupled": True},
    }

    assert pb_utils.get_input_config_by_name(config, "A") == {"name": "A"}
    assert pb_utils.get_output_config_by_name(config, "B") == {"name": "B"}
    assert pb_utils.get_input_config_by_name(config, "B") is None
    assert pb_utils.using_decoupled_model_transaction_policy(config)
    assert not pb_utils.using_decoupled_model_transaction_policy({})
