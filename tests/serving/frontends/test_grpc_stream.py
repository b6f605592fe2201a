"""A gRPC stream that its client leaves: what it asked for is cancelled, all of it, and quietly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2

from serving.client_memory import ClientMemory
from serving.errors import CancelledError
from serving.frontends.grpc_server import _ClientsFaults
from serving.frontends.grpc_stream import InferStream
from serving.request import InferenceRequest
from serving.tracing.tracer import Tracer
from tests.serving.frontends.process import ServerProcess
from tests.serving.protocol.specs import identity_spec
from tests.waiting import wait_until


class Queueing:
    """A server whose requests wait, and are answered when they are cancelled, as in a queue."""

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []

    def receiver(self, name: str, version: int) -> Any:
        return SimpleNamespace(spec=identity_spec(), labels_of=lambda _: [])

    def infer(self, request: InferenceRequest) -> None:
        self.requests.append(request)
        request.on_cancel = self._cancelled

    def _cancelled(self, request: InferenceRequest) -> None:
        assert request.on_response is not None
        request.on_response(request.error_response(CancelledError("gone")))


async def messages(count: int) -> AsyncIterator[Any]:
    for number in range(count):
        message = service_pb2.ModelInferRequest(model_name="m", id=str(number))
        message.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
        message.raw_input_contents.append(bytes(4))
        yield message


async def test_a_client_that_leaves_cancels_every_request_of_its_stream() -> None:
    server: Any = Queueing()
    context = SimpleNamespace(invocation_metadata=lambda: ())
    answers = InferStream(server, messages(5), context, ClientMemory(), Tracer()).responses()
    reading = asyncio.ensure_future(anext(answers))
    await wait_until(lambda: len(server.requests) == 5)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert [request.is_cancelled for request in server.requests] == [True] * 5


@pytest.mark.parametrize(
    ("name", "is_told"), [("ExecuteBatchError", False), ("DecodeError", False), ("Other", True)]
)
def test_a_client_cannot_fill_the_log_with_tracebacks(name: str, is_told: bool) -> None:
    error = type(name, (Exception,), {})
    info = (error, error(), None)
    record = logging.LogRecord("grpc.x", logging.ERROR, "file", 1, "text", (), info)

    assert _ClientsFaults().filter(record) is is_told
    assert (record.exc_info is None) is not is_told


async def test_a_stream_is_read_no_further_than_its_share() -> None:
    server: Any = Queueing()
    context = SimpleNamespace(invocation_metadata=lambda: ())
    answers = InferStream(server, messages(700), context, ClientMemory(), Tracer()).responses()
    reading = asyncio.ensure_future(anext(answers))
    await wait_until(lambda: len(server.requests) == 256)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(server.requests) == 256

    for request in server.requests[:10]:
        request.cancel()

    await wait_until(lambda: len(server.requests) == 266)
    assert (await reading).error_message == "gone"
    await answers.aclose()


@pytest.fixture
async def channel(served: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.ports['gRPC']}") as opened:
        yield opened


@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive", "RepositoryModelLoad"])
async def test_bytes_that_are_no_message_are_the_clients_fault(
    channel: grpc.aio.Channel, method: str
) -> None:
    call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")

    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call(b"\xff" * 20)

    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Unable to parse request" in (told.value.details() or "")


async def test_bytes_that_are_no_message_end_a_stream(channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(
        iter([b"\xff" * 20])
    )

    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call.read()

    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Unable to parse request" in (told.value.details() or "")


async def test_an_unknown_method_stays_unimplemented(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await channel.unary_unary("/inference.GRPCInferenceService/Nope")(b"")

    assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED
