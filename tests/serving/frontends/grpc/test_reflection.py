"""Server reflection, as grpcurl and other tools ask for it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2

from serving.errors import InvalidArgumentError
from serving.frontends.grpc_reflection import Reflection
from serving.options import GrpcOptions
from serving.protocol.status import GrpcStatus
from tests.serving.frontends.grpc.services import GRPC, RawGrpc, framed


@pytest.fixture(scope="module")
def reflection() -> Reflection:
    return Reflection((service_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR))


def ask(reflection: Reflection, **request: Any) -> Any:
    message = reflection._request(**request)
    return reflection._response.FromString(reflection.answer(message.SerializeToString()))


def test_it_lists_the_services(reflection: Reflection) -> None:
    answer = ask(reflection, host="h", list_services="*")
    assert [item.name for item in answer.list_services_response.service] == [
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]
    assert (answer.valid_host, answer.original_request.list_services) == ("h", "*")


@pytest.mark.parametrize(
    "symbol",
    [
        "inference.GRPCInferenceService",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor",
        "inference.DataType",
        "grpc.health.v1.Health.Check",
        "grpc.health.v1.HealthCheckResponse.ServingStatus",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflectionRequest",
    ],
)
def test_a_symbol_gives_files_that_stand_alone(reflection: Reflection, symbol: str) -> None:
    answer = ask(reflection, file_containing_symbol=symbol)
    pool = descriptor_pool.DescriptorPool()
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(raw)
        for raw in answer.file_descriptor_response.file_descriptor_proto
    ]
    for file in reversed(files):  # what is imported comes behind
        pool.Add(file)
    owner = symbol.rpartition(".")[0] if symbol.endswith(("ModelInfer", "Check")) else symbol
    assert pool.FindFileContainingSymbol(owner).name == files[0].name


def test_what_was_found_can_be_called(reflection: Reflection) -> None:
    answer = ask(reflection, file_by_filename="grpc_service.proto")
    pool = descriptor_pool.DescriptorPool()
    for raw in reversed(answer.file_descriptor_response.file_descriptor_proto):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(raw))
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    assert len(service.methods) == 20
    request = message_factory.GetMessageClass(service.methods_by_name["ModelReady"].input_type)
    assert request(name="m").SerializeToString() == b"\n\1m"


@pytest.mark.parametrize(
    "request_of",
    [
        {"file_by_filename": "nope.proto"},
        {"file_containing_symbol": "nope"},
        {"all_extension_numbers_of_type": "nope"},
        {"file_containing_extension": {"containing_type": "a", "extension_number": 1}},
        {},
    ],
)
def test_what_is_not_known_is_told_in_the_answer(
    reflection: Reflection, request_of: dict[str, Any]
) -> None:
    assert ask(reflection, **request_of).error_response.error_code == GrpcStatus.NOT_FOUND


def test_a_type_without_extensions(reflection: Reflection) -> None:
    answer = ask(reflection, all_extension_numbers_of_type="inference.ModelInferRequest")
    assert list(answer.all_extension_numbers_response.extension_number) == []


def test_bytes_that_are_no_message_are_refused(reflection: Reflection) -> None:
    with pytest.raises(InvalidArgumentError, match="Unable to parse"):
        reflection.answer(b"\xff")


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_both_versions_are_served(reflection: Reflection, version: str) -> None:
    from serving.frontends.grpc_server import GrpcApplication
    from serving.frontends.http2.server import Http2Server

    server = Http2Server(GrpcApplication(reflection.methods(), GrpcOptions()))
    await server.start("127.0.0.1", 0)
    client = await RawGrpc.connect(server.port)
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    client.open(1, path, *GRPC)
    ask_services = framed(reflection._request(list_services="").SerializeToString())
    client.data(1, ask_services + ask_services, end=True)
    answer = await client.answer(1)
    assert answer.body.count(b"inference.GRPCInferenceService") == 2
    assert answer.trailers == {"grpc-status": "0"}
    client.open(3, path, *GRPC)
    client.data(3, framed(b"\xff"))
    assert (await client.answer(3)).trailers["grpc-status"] == "3"
    await server.stop(0)
