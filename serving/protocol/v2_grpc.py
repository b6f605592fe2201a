"""ModelInferRequest to InferenceRequest; the way back is `v2_grpc_encode`.

Pure; loop thread. Source: spec protocol_grpc.md C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.client_memory import ClientMemory, RegionPart
from serving.config.decode import ModelSpec
from serving.datatypes import BY_NAME, DataType, element_count
from serving.errors import InvalidArgumentError
from serving.protocol import v2_binary
from serving.protocol.parameters import apply_parameter, version_number
from serving.protocol.tensor_counts import check_tensor_counts
from serving.protocol.v2_grpc_split import Bytes, InputHead, OutputHead, RequestHead, SplitRequest
from serving.request import InferenceRequest, InputTensor, RequestedOutput

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_REGION = "shared_memory_region"
_MAY_BE_UINT64 = frozenset({"priority", "sequence_id"})
_ENABLE_EMPTY_FINAL = "triton_enable_empty_final_response"


def parse_version(text: str, model: str) -> int:
    """-1 for an empty version. Raises InvalidArgumentError for what is no version number."""
    if not text:
        return -1
    if not text.isascii() or not text.isdigit():
        raise InvalidArgumentError(
            f"model '{model}' has no version '{text[:40]}': versions are numbers, empty means the "
            "latest"
        )
    return version_number(text)


def decode_request(
    split: SplitRequest, spec: ModelSpec, version: int, memory: ClientMemory
) -> InferenceRequest:
    """Build the request; arrays are views of its raw contents, or read from `memory`.

    Raises: InvalidArgumentError, UnsupportedError, NotFoundError.
    """
    head = split.head
    check_tensor_counts(len(head.inputs), len(head.outputs), spec)
    request = InferenceRequest(spec.name, version, split.id)
    for name, value in head.parameters:
        if name == _ENABLE_EMPTY_FINAL:
            if value.WhichOneof("parameter_choice") != "bool_param":
                raise InvalidArgumentError(f"parameter '{name}' must be a bool")
            request.parameters[name] = value.bool_param
        else:
            _refuse_uint64(name, value)
            apply_parameter(request, name, _parameter(name, value))
    raw = split.raw
    if raw:
        _check_raw_count(head, len(raw), spec)
    contents = iter(raw)
    for item in head.inputs:
        if item.name in request.inputs:
            raise InvalidArgumentError(
                f"input '{item.name}' already exists in request for model '{spec.name}'"
            )
        tensor = f"input '{item.name}' of model '{spec.name}'"
        data: Bytes | bytearray | None
        if (part := _region_part(item.parameters, tensor, memory)) is None:
            data = next(contents) if raw else None
        elif item.contents is not None:
            raise InvalidArgumentError(f"{tensor} has both typed contents and {_REGION}")
        else:
            data = part.read()
        request.inputs[item.name] = _input(item, data, tensor)
    for output in head.outputs:
        request.requested_outputs.append(_output(output, memory))
    return request


def _check_raw_count(head: RequestHead, count: int, spec: ModelSpec) -> None:
    carried = sum(not item.parameters or _REGION not in item.parameters for item in head.inputs)
    if count != carried:
        raise InvalidArgumentError(
            f"request to model '{spec.name}' has {carried} inputs without shared memory but "
            f"{count} entries in raw_input_contents; they must correspond one to one"
        )


def _region_part(parameters: Any, where: str, memory: ClientMemory) -> RegionPart | None:
    """The client shared memory that a tensor lies in or goes to; None where it does not."""
    if not parameters:
        return None
    if _REGION in parameters:
        return memory.part(
            {name: _parameter(name, value) for name, value in parameters.items()}, where
        )
    for name in ("shared_memory_offset", "shared_memory_byte_size"):
        if name in parameters:
            raise InvalidArgumentError(f"{where} has '{name}' without '{_REGION}'")
    return None


def _refuse_uint64(name: str, value: Any) -> None:
    """Of all parameters two may have that type: priorities, and ids as ensembles give them back.

    Raises InvalidArgumentError. Source: spec GRPC-022.
    """
    if name not in _MAY_BE_UINT64 and value.WhichOneof("parameter_choice") == "uint64_param":
        raise InvalidArgumentError(
            f"invalid value type for '{name}' parameter, expected int64_param, bool_param, "
            "double_param or string_param"
        )


def _parameter(name: str, value: Any) -> object:
    choice = value.WhichOneof("parameter_choice")
    if choice is None:
        raise InvalidArgumentError(f"parameter '{name}' has no value")
    return getattr(value, choice)


def _input(item: InputHead, raw: Bytes | bytearray | None, tensor: str) -> InputTensor:
    datatype = BY_NAME.get(item.datatype)
    if datatype is None:
        raise InvalidArgumentError(
            f"{tensor} has the unknown datatype '{item.datatype}'; known are {', '.join(BY_NAME)}"
        )
    shape = v2_binary.check_shape(item.shape, tensor)
    if raw is None:
        values = _typed(item.contents, datatype, shape, tensor)
        return InputTensor(item.name, datatype, shape, values)
    if item.contents is not None:
        raise InvalidArgumentError(
            f"{tensor} has both typed contents and raw_input_contents; use one of them"
        )
    array = v2_binary.array_from_bytes(raw, datatype, shape, tensor)
    return InputTensor(item.name, datatype, shape, array)


def _typed(contents: Any, datatype: DataType, shape: tuple[int, ...], tensor: str) -> Any:
    """The array of typed contents; integers wider than the datatype are truncated as in Triton."""
    count = element_count(shape)
    present = [] if contents is None else [field.name for field, _ in contents.ListFields()]
    field = _CONTENTS.get(datatype.name)
    if field is None:
        raise InvalidArgumentError(
            f"{tensor} has datatype {datatype.name}, which typed contents cannot carry; use "
            "raw_input_contents"
        )
    if not present and count:
        raise InvalidArgumentError(f"unable to find data for {tensor}")
    if any(name != field for name in present):
        raise InvalidArgumentError(
            f"unexpected explicit tensor data for {tensor}: {datatype.name} goes into {field}, got "
            f"{', '.join(present)}"
        )
    values = () if contents is None else getattr(contents, field)
    if len(values) != count:
        raise InvalidArgumentError(
            f"{tensor}: shape {list(shape)} needs {count} elements, {field} has {len(values)}"
        )
    array: NDArray[Any]
    if datatype.is_bytes:
        array = np.empty(count, dtype=np.object_)
        array[:] = list(values)
    else:
        wide = {"int_contents": np.int32, "uint_contents": np.uint32}.get(field, datatype.dtype)
        array = np.array(values, dtype=wide).astype(datatype.dtype, copy=False)
    try:
        return array.reshape(shape)
    except ValueError as error:
        raise InvalidArgumentError(f"{tensor} has an impossible shape: {error}") from None


def _output(item: OutputHead, memory: ClientMemory) -> RequestedOutput:
    output = RequestedOutput(item.name, binary=True)
    if not item.parameters:
        return output
    where = f"output '{item.name}'"
    classification = item.parameters.get("classification")
    if classification is not None:
        if _REGION in item.parameters:
            raise InvalidArgumentError(
                f"{where}: 'classification' cannot be combined with '{_REGION}'"
            )
        is_int = classification.WhichOneof("parameter_choice") == "int64_param"
        if not is_int or not 0 < classification.int64_param < 2**31:
            raise InvalidArgumentError(
                f"{where}: parameter 'classification' must be a positive int64_param"
            )
        output.classification_count = classification.int64_param
    output.buffer = _region_part(item.parameters, where, memory)
    return output
