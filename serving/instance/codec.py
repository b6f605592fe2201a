"""Requests, responses and errors to and from the messages of the wire. Pure functions."""

from __future__ import annotations

from serving.errors import ErrorCode, FailureReason, ServingError, error_from_code
from serving.instance.shared_tensors import TensorPacker, TensorUnpacker
from serving.instance.wire import ErrorHeader, RequestHeader, ResponseHeader, WireError
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.response import InferenceResponse, OutputTensor


def request_header(number: int, request: InferenceRequest, packer: TensorPacker) -> RequestHeader:
    # Loops instead of comprehensions: those cost a frame each, for every request.
    inputs = []
    for item in request.inputs.values():
        inputs.append(packer.add(item.name, item.datatype, item.array))
    outputs = []
    for output in request.requested_outputs:
        outputs.append(output.name)
    return RequestHeader(
        number,
        request.id,
        inputs,
        outputs,
        request.parameters,
        request.correlation_id,
        request.sequence_start,
        request.sequence_end,
        request.priority,
        request.timeout_us,
        request.batch_size,
        "" if request.trace is None else request.trace.context,
    )


def request_from(
    header: RequestHeader, unpacker: TensorUnpacker, model_name: str, model_version: int
) -> InferenceRequest:
    inputs = {}
    for item in header.inputs:
        datatype, array = unpacker.unpack(item)
        inputs[item.name] = InputTensor(item.name, datatype, item.shape, array)
    outputs = []
    for name in header.outputs:
        outputs.append(RequestedOutput(name))
    return InferenceRequest(
        model_name,
        model_version,
        header.id,
        inputs,
        outputs,
        header.parameters,
        header.correlation_id,
        header.sequence_start,
        header.sequence_end,
        header.priority,
        header.timeout_us,
        batch_size=header.batch_size,
        trace_context=header.trace,
    )


def response_header(
    number: int, response: InferenceResponse, packer: TensorPacker
) -> ResponseHeader:
    outputs = []
    for item in response.outputs:
        outputs.append(packer.add(item.name, item.datatype, item.array))
    return ResponseHeader(
        number,
        outputs,
        response.parameters,
        None if response.error is None else error_header(response.error),
        response.is_final,
        response.is_null,
    )


def response_from(
    header: ResponseHeader, unpacker: TensorUnpacker, request: InferenceRequest, version: int
) -> InferenceResponse:
    outputs = []
    for item in header.outputs:
        datatype, array = unpacker.unpack(item)
        outputs.append(OutputTensor(item.name, datatype, item.shape, array))
    return InferenceResponse(
        request.model_name,
        version,
        request.id,
        outputs,
        header.parameters,
        None if header.error is None else error_from(header.error),
        header.is_final,
        header.is_null,
    )


def error_header(error: ServingError) -> ErrorHeader:
    return ErrorHeader(error.code.name, error.message, error.failure_reason.name)


def wire_text(text: str) -> str:
    """What a model says may hold lone surrogates, which no message can carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_from(header: ErrorHeader) -> ServingError:
    try:
        code, reason = ErrorCode[header.code], FailureReason[header.reason]
    except KeyError:
        raise WireError(f"unknown error code {header.code!r} or reason") from None
    return error_from_code(code, header.message, reason)
