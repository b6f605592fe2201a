"""conch_backend.h for ctypes: structures, codes and the types of functions. Pure; any thread.

Pointers are plain addresses: whoever fills a structure keeps what they point to.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_uint64,
    c_void_p,
)
from ctypes import c_uint32 as c_uint

from serving.config.decode import InstanceKind
from serving.errors import (
    ErrorCode,
    FailureReason,
    ServingError,
    error_from_code,
)

ABI_VERSION = 1
MESSAGE_SIZE = 1024
OK, INTERNAL, NOT_FOUND, INVALID_ARG = 0, 2, 3, 4
CODES = {
    1: ErrorCode.UNKNOWN,
    2: ErrorCode.INTERNAL,
    3: ErrorCode.NOT_FOUND,
    4: ErrorCode.INVALID_ARG,
    5: ErrorCode.UNAVAILABLE,
    6: ErrorCode.UNSUPPORTED,
    7: ErrorCode.ALREADY_EXISTS,
    8: ErrorCode.CANCELLED,
}
STRING, INT, BOOL, DOUBLE = range(4)
SEQUENCE_START, SEQUENCE_END = 1, 2
RESPONSE_FINAL = 1
KINDS = {InstanceKind.CPU: 0, InstanceKind.GPU: 1, InstanceKind.MODEL: 2}
DEVICE_BLOCKING = 1


class Error(Structure):
    _fields_ = [("message", c_char * MESSAGE_SIZE)]

    def write(self, text: str) -> None:
        """As much of the text as fits, whole characters only."""
        self.message = text.encode()[: MESSAGE_SIZE - 1].decode("utf-8", "ignore").encode()

    @property
    def text(self) -> str:
        return str(self.message.decode("utf-8", "replace"))


class Tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("datatype", c_int32),
        ("rank", c_uint),
        ("shape", c_void_p),
        ("data", c_void_p),
        ("byte_size", c_uint64),
    ]


class Parameter(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int32),
        ("bool_value", c_int32),
        ("int_value", c_int64),
        ("double_value", c_double),
        ("string_value", c_char_p),
    ]


class Request(Structure):
    _fields_ = [
        ("id", c_char_p),
        ("correlation_id", c_uint64),
        ("correlation_id_text", c_char_p),
        ("flags", c_uint),
        ("priority", c_uint),
        ("timeout_us", c_uint64),
        ("batch_size", c_uint),
        ("input_count", c_uint),
        ("inputs", c_void_p),
        ("output_count", c_uint),
        ("parameter_count", c_uint),
        ("outputs", c_void_p),
        ("parameters", c_void_p),
    ]


class Response(Structure):
    _fields_ = [
        ("code", c_int32),
        ("output_count", c_uint),
        ("outputs", c_void_p),
        ("parameter_count", c_uint),
        ("reserved", c_uint),
        ("parameters", c_void_p),
        ("message", c_char_p),
    ]


Log = CFUNCTYPE(None, c_int32, c_char_p)
Respond = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint, c_void_p)
IsCancelled = CFUNCTYPE(c_int32, c_void_p)


class Host(Structure):
    _fields_ = [
        ("abi_version", c_uint),
        ("reserved", c_uint),
        ("log", Log),
        ("respond", Respond),
        ("is_cancelled", IsCancelled),
    ]


class Setting(Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class Backend(Structure):
    _fields_ = [
        ("host", c_void_p),
        ("name", c_char_p),
        ("library", c_char_p),
        ("setting_count", c_uint),
        ("reserved", c_uint),
        ("settings", c_void_p),
        ("state", c_void_p),
    ]


class Model(Structure):
    _fields_ = [
        ("backend", c_void_p),
        ("name", c_char_p),
        ("version", c_int64),
        ("model_directory", c_char_p),
        ("version_directory", c_char_p),
        ("config", c_char_p),
        ("is_decoupled", c_uint),
        ("max_batch_size", c_uint),
        ("state", c_void_p),
    ]


class Instance(Structure):
    _fields_ = [
        ("model", c_void_p),
        ("name", c_char_p),
        ("kind", c_int32),
        ("device", c_int32),
        ("state", c_void_p),
    ]


class Attributes(Structure):
    _fields_ = [("execution_policy", c_int32), ("parallel_loading", c_int32)]


def serving_error(code: int, text: str, where: str) -> ServingError:
    """The error of a library, as clients see it; `where` begins the sentence."""
    known = CODES.get(code, ErrorCode.UNKNOWN)
    return error_from_code(known, f"{where}: {text or 'no reason given'}", FailureReason.BACKEND)
