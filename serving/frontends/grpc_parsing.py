"""Requests whose bytes are no message get an answer that says so. Loop thread.

grpc.aio answers them with UNKNOWN or INTERNAL and the text of an exception. Here the deserializer
returns `MALFORMED` in place of a message, and the handlers of `grpc_service` refuse that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from serving.errors import InvalidArgumentError

MALFORMED = object()
_FORMS = {
    (False, False): (grpc.unary_unary_rpc_method_handler, "unary_unary"),
    (False, True): (grpc.unary_stream_rpc_method_handler, "unary_stream"),
    (True, False): (grpc.stream_unary_rpc_method_handler, "stream_unary"),
    (True, True): (grpc.stream_stream_rpc_method_handler, "stream_stream"),
}


def refuse_malformed(request: object) -> None:
    """Raises InvalidArgumentError."""
    if request is MALFORMED:
        raise InvalidArgumentError(
            "Unable to parse request: its bytes are no message of this method; client and server "
            "must use the same version of the protocol"
        )


class TolerantRegistrar:
    """Stands in for a server while generated code registers a service at it."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._server.add_generic_rpc_handlers([_TolerantHandler(item) for item in handlers])

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """The same once more, from newer generated code; grpc.aio has no use for it."""


class _TolerantHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._known: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        handler = self._known.get(method)
        if handler is None:
            found = self._inner.service(handler_call_details)
            if found is None:
                return None
            handler = self._known[method] = _tolerant(found)
        return handler


def _tolerant(handler: Any) -> Any:
    make, name = _FORMS[handler.request_streaming, handler.response_streaming]
    return make(
        getattr(handler, name),
        request_deserializer=_parse_with(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


def _parse_with(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parsed(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return MALFORMED

    return parsed
