"""What crosses between a worker and an instance process: frames, message kinds, message types.

A frame is a 16-byte prefix (payload length, header length, number of file descriptors, kind), a
msgpack header, and inline tensor bytes. Descriptors of shared segments travel beside the first
byte of their frame. Requests have numbers of their own, so that a request may get several
responses, in any order, also after its batch is done; a frame may carry the answers of a whole
batch. Pure functions and types; used by the loop thread of the worker and by the child.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

import msgspec

from serving.response import ParameterValue

PREFIX = struct.Struct("<IIIB3x")
MAX_PAYLOAD_BYTES = 1 << 30
MAX_DESCRIPTORS = 64
ALIGNMENT = 16
"""Of inline tensors, relative to the start of a payload."""
INLINE = -1
"""Segment number of a tensor whose bytes are in the frame."""


class Kind(enum.IntEnum):
    """Message kinds. Numbers are never reused; 1-31 go to the child, 32-63 to the worker."""

    LOAD = 1
    EXECUTE = 2
    CANCEL = 3
    SEGMENTS = 4
    CLOSE = 5
    CALL_RESULT = 6
    """Responses to a CALL, by its number."""
    CHECK_READY = 7
    ASK_RESULT = 8

    LOADED = 32
    LOAD_FAILED = 33
    RESPONSES = 34
    SEGMENT_NEWS = 35
    CLOSED = 36
    LOG = 37
    CALL = 38
    """Inference on another model (BLS)."""
    METRICS = 39
    READY = 40
    CALL_CANCEL = 41
    ASK = 42
    """Something small that the worker knows or does: load, unload, is it ready, a metric."""


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of all messages: positional on the wire, fields are only ever added at the end."""


class TensorHeader(Message):
    name: str
    datatype: str
    shape: tuple[int, ...]
    segment: int
    offset: int
    nbytes: int


class RequestHeader(Message):
    number: int
    id: str
    inputs: list[TensorHeader]
    outputs: list[str]
    """Empty: every output of the model."""
    parameters: dict[str, ParameterValue]
    correlation_id: int | str
    sequence_start: bool
    sequence_end: bool
    priority: int
    timeout_us: int
    batch_size: int
    trace: str = ""
    """W3C `traceparent` of what is done on its behalf."""


class ErrorHeader(Message):
    code: str
    message: str
    reason: str


class ResponseHeader(Message):
    number: int
    outputs: list[TensorHeader]
    parameters: dict[str, ParameterValue]
    error: ErrorHeader | None
    is_final: bool
    is_null: bool


class Load(Message):
    backend: str
    """The file that it comes from, or `module:Class`."""
    config: bytes
    version: int
    model_directory: str
    backend_config: dict[str, str]
    instance_name: str
    instance_kind: str
    device_id: int
    runtime_directory: str = ""
    """Of a Python-based backend: the folder with its model.py."""


class Loaded(Message):
    pid: int
    has_ready_hook: bool = False
    """The model itself says whether it is ready: CHECK_READY asks it."""


class LoadFailed(Message):
    error: ErrorHeader


class Execute(Message):
    batch: int
    """Number of the first batch."""
    sizes: list[int]
    """How many of the requests make up each batch; one is executed after the other."""
    requests: list[RequestHeader]
    released: list[int]
    """Segments of the child whose tensors the worker no longer needs."""


class Cancel(Message):
    numbers: list[int]


class BatchDone(Message):
    batch: int
    start_ns: int
    input_end_ns: int = 0
    output_start_ns: int = 0
    end_ns: int = 0
    error: ErrorHeader | None = None
    """Execute failed: every request of the batch without a final response fails."""
    rescheduled: list[int] = msgspec.field(default_factory=list)
    """Requests to be executed once more, which get no final response now."""


class Responses(Message):
    responses: list[ResponseHeader]
    released: list[int]
    """Segments of the worker whose tensors the child no longer needs."""
    done: list[BatchDone] = msgspec.field(default_factory=list)
    """Batches that are done with this message."""


class Call(Message):
    model_name: str
    model_version: int
    is_decoupled: bool
    """The caller is ready for any number of responses."""
    request: RequestHeader
    callers: list[int]
    """Numbers of the requests that are being executed by whoever calls."""
    released: list[int]
    traced: int = -1
    """Number of the request whose trace this call joins; -1: none."""


class Ask(Message):
    number: int
    what: str
    """load, unload, ready, family, metric, value."""
    name: str
    text: str = ""
    """A config to load with, or what a metric family is about."""
    flag: int = 0
    """A version, a metric's kind, or whether dependents are unloaded too."""
    pairs: dict[str, str] = msgspec.field(default_factory=dict)
    """A metric's labels."""
    files: dict[str, bytes] = msgspec.field(default_factory=dict)
    bounds: list[float] = msgspec.field(default_factory=list)
    """A histogram's buckets."""


class AskResult(Message):
    number: int
    error: ErrorHeader | None = None
    value: float = 0.0


class MetricUpdate(Message):
    """What has happened to a metric since the last one."""

    metric: int
    added: float = 0.0
    """After `value`, where there is one."""
    value: float | None = None
    counts: list[int] = msgspec.field(default_factory=list)
    """A histogram's new observations by bucket; `added` is their sum."""


class Metrics(Message):
    updates: list[MetricUpdate]
    gone: list[int]
    """Metrics that the model has dropped."""


class CheckReady(Message):
    number: int


class Ready(Message):
    number: int
    is_ready: bool
    error: str


class Segments(Message):
    """News on shared segments, for either side."""

    released: list[int]
    """Segments of the receiver whose tensors the sender no longer needs."""
    forgotten: list[int]
    """Segments of the sender that it will not use again: unmap them."""
    must_trim: bool = False
    """To the child: big tensors have not come for a while, free what is idle, report the rest."""


class Close(Message):
    pass


class Closed(Message):
    error: str
    """What finalize raised, or empty."""


class Log(Message):
    level: int
    """Number as in `logging`."""
    text: str


@dataclass(slots=True)
class Frame:
    """One received frame. Inline tensors are views of `payload` and keep it alive."""

    kind: int
    header: memoryview
    payload: bytearray
    data_start: int
    descriptors: list[int]


class WireError(Exception):
    """The other side sent something that is no message of this wire."""


_encoder = msgspec.msgpack.Encoder()
_GAPS = [bytes(length) for length in range(ALIGNMENT)]


def check(message: Message) -> None:
    """Raises: ValueError, TypeError or OverflowError when `pack` could not encode it."""
    _encoder.encode(message)


def aligned(length: int) -> int:
    return (length + ALIGNMENT - 1) & -ALIGNMENT


def pack(
    kind: Kind, message: Message, blobs: list[bytes] | None = None, descriptor_count: int = 0
) -> bytes:
    """One frame. `blobs` are inline tensors; each starts at a multiple of ALIGNMENT."""
    header = _encoder.encode(message)
    length = len(header)
    if not blobs:
        return PREFIX.pack(length, length, descriptor_count, kind) + header
    parts = [b"", header]
    for blob in blobs:
        gap = -length & (ALIGNMENT - 1)
        parts += (_GAPS[gap], blob)
        length += gap + len(blob)
    parts[0] = PREFIX.pack(length, len(header), descriptor_count, kind)
    return b"".join(parts)
