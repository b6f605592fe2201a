"""The generate extension: a flat JSON object in, a flat JSON object for each response out.

Members named like an input become that tensor, a member `parameters` is looked into, everything
else becomes a request parameter. Pure; any thread. Source: spec HTTP-050 to HTTP-053.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson

from serving.config.decode import ModelSpec, TensorSpec
from serving.datatypes import element_count
from serving.errors import InvalidArgumentError
from serving.protocol.json_tensor import array_from_json, flat_values, output_data
from serving.protocol.parameters import apply_parameter, custom_value
from serving.protocol.v2_json import parse_json
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor


def decode_request(body: memoryview, spec: ModelSpec, version: int) -> InferenceRequest:
    """Raises: InvalidArgumentError."""
    return request_of(_members(body), spec, version)


def request_of(
    members: Iterable[tuple[str, Any]], spec: ModelSpec, version: int
) -> InferenceRequest:
    """By members of a JSON object, those of `parameters` included. Raises InvalidArgumentError."""
    request = InferenceRequest(spec.name, version)
    for name, value in members:
        if name in spec.inputs:
            _add_input(request, spec, spec.inputs[name], value)
        elif name == "id":
            # Triton hands the id to the model twice: as the request's id and as a parameter.
            request.id = str(custom_value(name, value))
            apply_parameter(request, name, value)
        else:
            apply_parameter(request, name, value)
    return request


def _members(body: memoryview) -> Iterator[tuple[str, Any]]:
    """Members of the object, those of `parameters` included, in order."""
    if not isinstance(parse_json(body, "request body"), dict):
        raise InvalidArgumentError("the body of a generate request must be a JSON object")
    for name, value in _pairs(bytes(body)):
        if name == "parameters" and isinstance(value, _Object):
            yield from ((inner, _plain(item)) for inner, item in value)
        else:
            yield name, _plain(value)


class _Object(list[tuple[str, Any]]):
    """A JSON object that remembers repeated members."""


def _pairs(body: bytes) -> _Object:
    pairs: _Object = json.loads(body, object_pairs_hook=_Object)
    return pairs


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, _Object) else value


def _add_input(request: InferenceRequest, spec: ModelSpec, tensor: TensorSpec, value: Any) -> None:
    where = f"input '{tensor.name}' of model '{spec.name}'"
    if tensor.name in request.inputs:
        raise InvalidArgumentError(f"{where} is given twice")
    data = value if isinstance(value, list) else [value]
    count = len(flat_values(data, tensor.datatype, where))
    batch = (1,) if spec.has_batch_axis else ()
    shape = batch + _fill(tensor.dims, count, where)
    array = array_from_json(data, tensor.datatype, shape, where)
    request.inputs[tensor.name] = InputTensor(tensor.name, tensor.datatype, shape, array)


def _fill(dims: tuple[int, ...], count: int, where: str) -> tuple[int, ...]:
    """The shape with its one open dimension deduced from the number of elements."""
    if dims.count(-1) == 0:
        return dims
    if dims.count(-1) > 1:
        raise InvalidArgumentError(
            f"{where} has dims {list(dims)}: generate can deduce one open dimension only; use infer"
        )
    step = element_count(tuple(dim for dim in dims if dim != -1))
    if step == 0 or count % step:
        raise InvalidArgumentError(
            f"{where}: {count} elements do not fill dims {list(dims)}, they must be a multiple of "
            f"{step}"
        )
    return tuple(count // step if dim == -1 else dim for dim in dims)


def encode_response(response: InferenceResponse) -> bytes:
    """One response without error as a flat JSON object; tensors of one element are scalars.

    Raises: InvalidArgumentError where JSON cannot carry a tensor.
    """
    members: dict[str, Any] = dict(response.parameters)
    if response.id:
        members["id"] = response.id
    members["model_name"] = response.model_name
    members["model_version"] = str(response.model_version)
    for output in response.outputs:
        data = output_data(output)
        members[output.name] = _scalar(output, data) if output.array.size == 1 else data
    return orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)


def _scalar(output: OutputTensor, data: object) -> object:
    if isinstance(data, orjson.Fragment):  # NaN and the infinities, which orjson does not write
        return orjson.Fragment(json.dumps(output.array.item()).encode())
    assert isinstance(data, np.ndarray | list)
    return data[0]
