"""Server reflection, v1 and v1alpha: which services there are, and their descriptors. Loop thread.

The messages are made here; both versions have the same ones. Source: reflection.proto of gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from serving.errors import NotFoundError, ServingError
from serving.frontends.grpc_methods import Method
from serving.frontends.grpc_stream_call import StreamCall
from serving.frontends.http2.stream import Part
from serving.protocol.status import grpc_status
from serving.protocol.v2_grpc_split import parse

_VERSIONS = ("v1", "v1alpha")
_MOST_UNSENT = 1024**2
_STRING, _INT32, _BYTES, _MESSAGE = 9, 5, 12, 11
_ONE, _MANY = 1, 3
_FIELDS: dict[str, list[tuple[str, int, int, str]]] = {
    "ServerReflectionRequest": [
        ("host", 1, _STRING, ""),
        ("file_by_filename", 3, _STRING, "message_request"),
        ("file_containing_symbol", 4, _STRING, "message_request"),
        ("file_containing_extension", 5, _MESSAGE, "message_request"),
        ("all_extension_numbers_of_type", 6, _STRING, "message_request"),
        ("list_services", 7, _STRING, "message_request"),
    ],
    "ExtensionRequest": [("containing_type", 1, _STRING, ""), ("extension_number", 2, _INT32, "")],
    "ServerReflectionResponse": [
        ("valid_host", 1, _STRING, ""),
        ("original_request", 2, _MESSAGE, ""),
        ("file_descriptor_response", 4, _MESSAGE, "message_response"),
        ("all_extension_numbers_response", 5, _MESSAGE, "message_response"),
        ("list_services_response", 6, _MESSAGE, "message_response"),
        ("error_response", 7, _MESSAGE, "message_response"),
    ],
    "FileDescriptorResponse": [("file_descriptor_proto", 1, _BYTES, "*")],
    "ExtensionNumberResponse": [
        ("base_type_name", 1, _STRING, ""),
        ("extension_number", 2, _INT32, "*"),
    ],
    "ListServiceResponse": [("service", 1, _MESSAGE, "*")],
    "ServiceResponse": [("name", 1, _STRING, "")],
    "ErrorResponse": [("error_code", 1, _INT32, ""), ("error_message", 2, _STRING, "")],
}
"""Message -> its fields: name, number, type, and the oneof that it is in, or "*" for many."""
_TYPES = {
    "file_containing_extension": "ExtensionRequest",
    "original_request": "ServerReflectionRequest",
    "file_descriptor_response": "FileDescriptorResponse",
    "all_extension_numbers_response": "ExtensionNumberResponse",
    "list_services_response": "ListServiceResponse",
    "error_response": "ErrorResponse",
    "service": "ServiceResponse",
}


def _file(version: str) -> descriptor_pb2.FileDescriptorProto:
    package = f"grpc.reflection.{version}"
    file = descriptor_pb2.FileDescriptorProto(
        name=f"grpc/reflection/{version}/reflection.proto", package=package, syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        made = file.message_type.add(name=message)
        for name, number, kind, place in fields:
            label: Any = _MANY if place == "*" else _ONE
            type_number: Any = kind
            field = made.field.add(name=name, number=number, label=label, type=type_number)
            if kind == _MESSAGE:
                field.type_name = f".{package}.{_TYPES[name]}"
            if place not in ("", "*"):
                if not made.oneof_decl:
                    made.oneof_decl.add(name=place)
                field.oneof_index = 0
    service = file.service.add(name="ServerReflection")
    service.method.add(
        name="ServerReflectionInfo",
        input_type=f".{package}.ServerReflectionRequest",
        output_type=f".{package}.ServerReflectionResponse",
        client_streaming=True,
        server_streaming=True,
    )
    return file


class Reflection:
    """`files`: descriptors of the files whose services are served, as generated modules have."""

    def __init__(self, files: Iterable[Any]) -> None:
        self._files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        self._symbols: dict[str, str] = {}
        """Full name -> its file."""
        self._services: list[str] = []
        for file in files:
            self._add_with_imports(file)
        for version in _VERSIONS:
            self._add(_file(version))
        pool = descriptor_pool.DescriptorPool()
        pool.Add(_file("v1"))
        known = pool.FindMessageTypeByName
        self._request = message_factory.GetMessageClass(
            known("grpc.reflection.v1.ServerReflectionRequest")
        )
        self._response = message_factory.GetMessageClass(
            known("grpc.reflection.v1.ServerReflectionResponse")
        )

    def methods(self) -> dict[str, Method]:
        """By path."""
        found = Method("ServerReflectionInfo", open_stream=lambda call: _Asking(call, self.answer))
        return {
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo": found
            for version in _VERSIONS
        }

    def _add_with_imports(self, file: Any) -> None:
        if file.name in self._files:
            return
        described = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(described)
        self._add(described)
        for needed in file.dependencies:
            self._add_with_imports(needed)

    def _add(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._files[file.name] = file
        prefix = f"{file.package}." if file.package else ""
        for service in file.service:
            self._services.append(prefix + service.name)
            self._symbols[prefix + service.name] = file.name
            for method in service.method:
                self._symbols[f"{prefix}{service.name}.{method.name}"] = file.name
        for message in file.message_type:
            self._add_message(prefix, message, file.name)
        for item in file.enum_type:
            self._symbols[prefix + item.name] = file.name

    def _add_message(self, prefix: str, message: Any, file: str) -> None:
        self._symbols[prefix + message.name] = file
        inner = f"{prefix}{message.name}."
        for nested in message.nested_type:
            self._add_message(inner, nested, file)
        for item in (*message.enum_type, *message.field):
            self._symbols[inner + item.name] = file

    def answer(self, data: Part) -> bytes:
        """One response to one request. Raises InvalidArgumentError for bytes that are none."""
        request = parse(self._request, data)
        response: Any = self._response(valid_host=request.host, original_request=request)
        try:
            self._fill(request, response)
        except ServingError as error:
            response.error_response.error_code = grpc_status(error.code)
            response.error_response.error_message = error.message
        return bytes(response.SerializeToString())

    def _fill(self, request: Any, response: Any) -> None:
        asked = request.WhichOneof("message_request")
        if asked == "list_services":
            for name in self._services:
                response.list_services_response.service.add(name=name)
        elif asked == "file_by_filename":
            self._give(request.file_by_filename, response)
        elif asked == "file_containing_symbol":
            symbol = request.file_containing_symbol
            self._give(self._symbols.get(symbol, ""), response, symbol)
        elif asked == "all_extension_numbers_of_type":
            name = request.all_extension_numbers_of_type
            if name not in self._symbols:
                raise NotFoundError(f"type '{name}' is not known")
            response.all_extension_numbers_response.base_type_name = name
        else:
            raise NotFoundError("there are no extensions")

    def _give(self, file: str, response: Any, asked: str = "") -> None:
        """The file with all that it imports, as clients that ask once want."""
        if file not in self._files:
            raise NotFoundError(f"'{asked or file}' is not known")
        waiting, seen = [file], {file}
        for name in waiting:
            response.file_descriptor_response.file_descriptor_proto.append(
                self._files[name].SerializeToString()
            )
            new = [item for item in self._files[name].dependency if item not in seen]
            waiting += new
            seen.update(new)


class _Asking:
    """One stream of questions."""

    def __init__(self, call: StreamCall, answer: Callable[[Part], bytes]) -> None:
        self._call = call
        self._answer = answer

    def on_message(self, data: Part) -> None:
        try:
            answer = self._answer(data)
        except ServingError as error:
            self._call.fail_with(error)
            return
        self._call.send([answer])
        if self._call.unsent_bytes > _MOST_UNSENT:
            self._call.pause()

    def on_drained(self) -> None:
        self._call.resume()

    def on_end(self) -> None:
        self._call.finish()

    def on_gone(self) -> None:
        """Nothing goes on."""
