"""A client that knows no message calls the server by reflection alone, as grpcurl does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.serving.frontends.process import ServerProcess

SERVICE = "inference.GRPCInferenceService"


@pytest.fixture
def channel(served: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.grpc) as channel:
        yield channel


def call(channel: grpc.Channel, pool: DescriptorPool, name: str, text: dict[str, Any]) -> Any:
    """JSON in, JSON out; the messages are made of what the server has told."""
    service, _, method = name.rpartition("/")
    described = pool.FindServiceByName(service).methods_by_name[method]
    request = json_format.ParseDict(text, GetMessageClass(described.input_type)())
    invoke = channel.unary_unary(
        f"/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(described.output_type).FromString,
    )
    return json_format.MessageToDict(invoke(request), preserving_proto_field_name=True)


def test_services_are_listed(channel: grpc.Channel) -> None:
    services = set(ProtoReflectionDescriptorDatabase(channel).get_services())

    assert {SERVICE, "grpc.health.v1.Health"} <= services


def test_methods_are_called_with_what_reflection_tells(channel: grpc.Channel) -> None:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    live = call(channel, pool, f"{SERVICE}/ServerLive", {})
    health = call(channel, pool, "grpc.health.v1.Health/Check", {})
    config = call(channel, pool, f"{SERVICE}/ModelConfig", {"name": "identity"})
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2]}
    tensor["contents"] = {"fp32_contents": [1, 2]}
    answer = call(
        channel, pool, f"{SERVICE}/ModelInfer", {"model_name": "identity", "inputs": [tensor]}
    )

    assert live == {"live": True}
    assert health == {"status": "SERVING"}
    assert config["config"]["dynamic_batching"] == {"preferred_batch_size": [8]}
    assert answer["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": ["1", "2"]}]


def test_every_method_of_the_service_is_described(channel: grpc.Channel) -> None:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    methods = pool.FindServiceByName(SERVICE).methods_by_name

    assert len(methods) == 20
    assert methods["ModelStreamInfer"].GetOptions() is not None


def test_an_unknown_symbol_is_not_found_and_the_stream_goes_on(channel: grpc.Channel) -> None:
    ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    wanted = [
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="inference.Nothing"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"{SERVICE}.ModelInfer"),
    ]

    unknown, known = ask(iter(wanted))

    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert known.file_descriptor_response.file_descriptor_proto
