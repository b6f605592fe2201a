"""What a sequence model tells whoever it cannot serve. Pure; loop thread.

Source: spec SCH-050..053, SCH-058, SCH-059, SCH-067; the words are Triton's, with a remedy.
"""

from __future__ import annotations

from serving.errors import (
    CancelledError,
    InvalidArgumentError,
    QueueRejectedError,
    UnavailableError,
)
from serving.request import InferenceRequest
from serving.scheduling.sequence.record import Sequence


def check_request(request: InferenceRequest) -> None:
    """One item, of a sequence. Raises: InvalidArgumentError."""
    if request.batch_size != 1:
        raise InvalidArgumentError(
            f"inference request to model '{request.model_name}' must specify batch-size 1 due to "
            f"requirements of the sequence batcher, got {request.batch_size}: send one item for "
            "each request"
        )
    if not request.correlation_id:
        raise InvalidArgumentError(
            f"inference request to model '{request.model_name}' must specify a non-zero or "
            "non-empty correlation ID: set the parameter sequence_id"
        )


def not_started(request: InferenceRequest, explanation: str) -> InvalidArgumentError:
    tail = f": {explanation}" if explanation else ""
    return InvalidArgumentError(
        f"inference request for sequence {request.correlation_id} to model "
        f"'{request.model_name}' must specify the START flag on the first request of the "
        f"sequence{tail}"
    )


def timed_out(model_name: str, sequence: Sequence) -> QueueRejectedError:
    return QueueRejectedError(
        f"timeout of the corresponding sequence has been expired: sequence {sequence.id!r} of "
        f"model '{model_name}' waited too long for a free slot; send it again later, or raise the "
        "number of instances"
    )


def cancelled(model_name: str, sequence: Sequence) -> CancelledError:
    return CancelledError(
        f"the request to model '{model_name}' was cancelled, or an earlier one of its sequence "
        f"{sequence.id!r} was"
    )


def lost(model_name: str, sequence: Sequence, instance: str) -> UnavailableError:
    return UnavailableError(
        f"instance '{instance}' of model '{model_name}' has ended, and with it sequence "
        f"{sequence.id!r}: start the sequence again"
    )
