"""Inference requests by the bytes of their JSON: what comes again and again is decoded once.

A client's requests differ in their binary tensors, rarely in the JSON before them. `KnownRequest`
is what decoding and checking such a JSON has come to, with the JSON of the answers to it; the next
request is made of it and of the binary data. Only plain requests are kept: binary tensors in and
out, no id, no parameters, no client memory. Loop thread.
Source: design of the hot path, rule 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from serving.datatypes import DataType
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.response import InferenceResponse

MAX_JSON_SIZE = 4096
MAX_OUTPUT_SIZE = 64 * 1024
"""Larger outputs go out without a copy, by the usual way."""
MAX_ANSWERS = 32
"""Of one request: the shapes that its outputs have had."""

AnswerKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class KnownInput:
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    start: int
    """Where its bytes begin in the body."""


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """Of outputs with these names, types and shapes."""

    head: bytes
    """What the front end puts before the JSON."""
    text: bytes
    sizes: list[int]
    """Of the binary tensors behind the JSON."""
    headers: list[tuple[bytes, bytes]]
    """What is in `head`; nobody changes it."""


@dataclass(slots=True)
class KnownRequest:
    body_size: int
    inputs: Sequence[KnownInput]
    outputs: Sequence[RequestedOutput]
    batch_size: int
    checked_by: object
    """See `InferenceRequest.checked_by`."""
    answers: dict[AnswerKey, KnownAnswer] = field(default_factory=dict)

    @classmethod
    def of(
        cls, request: InferenceRequest, json_size: int, body_size: int, *, is_binary: bool
    ) -> KnownRequest | None:
        """Of a request that was decoded from `body_size` bytes; None where it is not plain, or has
        not passed the checks.

        `is_binary`: outputs go out so where none are listed.
        """
        if request.id or request.parameters or request.correlation_id or request.priority:
            return None
        if request.timeout_us or request.sequence_start or request.sequence_end:
            return None
        if request.checked_by is None or json_size > MAX_JSON_SIZE:
            return None
        for output in request.requested_outputs:
            if not output.binary or output.classification_count or output.buffer is not None:
                return None
        if not request.requested_outputs and not is_binary:
            return None
        inputs = []
        start = json_size
        for tensor in request.inputs.values():
            if tensor.datatype.is_bytes or not tensor.array.size:
                return None
            inputs.append(KnownInput(tensor.name, tensor.datatype, tensor.shape, start))
            start += tensor.array.nbytes
        if start != body_size:
            return None  # there is one that is not in the body, or in its JSON
        outputs = tuple(request.requested_outputs)
        return cls(body_size, inputs, outputs, request.batch_size, request.checked_by)

    def request(self, body: memoryview, model_name: str, version: int) -> InferenceRequest:
        """`body` has the size and the JSON of this one."""
        request = InferenceRequest(model_name, version)
        inputs = request.inputs
        for item in self.inputs:
            array = np.ndarray(item.shape, item.datatype.dtype, body, item.start)
            if not array.flags.aligned:
                array = array.copy()
            inputs[item.name] = InputTensor(item.name, item.datatype, item.shape, array)
        request.requested_outputs += self.outputs
        request.batch_size = self.batch_size
        request.checked_by = self.checked_by
        return request

    def answer(
        self, response: InferenceResponse
    ) -> tuple[AnswerKey, list[bytes | memoryview]] | None:
        """The outputs as they go out, and by what the JSON before them can be known.

        None where it is not said by that: an error, an id, parameters, an output that is not plain.
        """
        if response.error is not None or response.id or response.parameters:
            return None
        if not response.outputs:
            return None
        key: list[object] = [response.model_name, response.model_version]
        parts: list[bytes | memoryview] = []
        for tensor in response.outputs:
            array, datatype = tensor.array, tensor.datatype
            if datatype.is_bytes or array.nbytes >= MAX_OUTPUT_SIZE:
                return None
            key += (tensor.name, datatype.name, tensor.shape)
            parts.append(array.tobytes())
        return tuple(key), parts

    def keep_answer(self, key: AnswerKey, answer: KnownAnswer) -> None:
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.clear()
        self.answers[key] = answer
