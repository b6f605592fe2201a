"""A gRPC stream that its client leaves: what it asked for is cancelled, all of it, and quietly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2

from serving.client_memory import ClientMemory
from serving.errors import CancelledError
from serving.frontends.grpc_head import CallHead
from serving.frontends.grpc_stream import InferStream
from serving.protocol.status import GrpcStatus
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.tracing.tracer import Tracer
from tests.serving.frontends.process import ServerProcess
from tests.serving.protocol.specs import identity_spec


class Queueing:
    """A server whose requests wait, and are answered when they are cancelled, as in a queue."""

    def __init__(self, *, is_decoupled: bool = False) -> None:
        self.requests: list[InferenceRequest] = []
        self._spec = identity_spec(is_decoupled=is_decoupled)

    def receiver(self, name: str, version: int) -> Any:
        return SimpleNamespace(spec=self._spec, labels_of=lambda _: [])

    def infer(self, request: InferenceRequest) -> None:
        self.requests.append(request)
        request.on_cancel = self._cancelled

    def _cancelled(self, request: InferenceRequest) -> None:
        assert request.on_response is not None
        request.on_response(request.error_response(CancelledError("gone")))


class FakeCall:
    """The `StreamCall` of a client that reads nothing by itself."""

    def __init__(self, **metadata: str) -> None:
        self.head = CallHead(metadata=tuple(metadata.items()))
        self.sent: list[Any] = []
        self.unsent_bytes = 0
        self.is_paused = False
        self.is_finished = False
        self.failed: tuple[GrpcStatus, str] | None = None
        self.stream: Any = None

    def send(self, parts: list[Any]) -> None:
        self.sent.append(service_pb2.ModelStreamInferResponse.FromString(b"".join(parts)))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def finish(self) -> None:
        self.is_finished = True

    def give_up(self, status: GrpcStatus, message: str) -> None:
        self.failed = (status, message)
        self.stream.on_gone()

    cut_short = give_up


def opened(server: Any, **metadata: str) -> tuple[InferStream, FakeCall]:
    call: Any = FakeCall(**metadata)
    call.stream = InferStream(server, call, ClientMemory(), Tracer())
    return call.stream, call


def message(number: int) -> bytes:
    request = service_pb2.ModelInferRequest(model_name="m", id=str(number))
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    request.raw_input_contents.append(bytes(4))
    return bytes(request.SerializeToString())


def test_a_client_that_leaves_cancels_every_request_of_its_stream() -> None:
    server: Any = Queueing()
    stream, call = opened(server)
    for number in range(5):
        stream.on_message(message(number))

    stream.on_gone()

    assert [request.is_cancelled for request in server.requests] == [True] * 5
    assert call.sent == []


def test_a_stream_is_read_no_further_than_its_share() -> None:
    server: Any = Queueing()
    stream, call = opened(server)
    for number in range(256):
        assert not call.is_paused
        stream.on_message(message(number))
    assert call.is_paused

    server.requests[0].cancel()

    assert not call.is_paused
    assert call.sent[0].error_message == "gone"


def test_a_stream_whose_answers_are_not_taken_is_read_no_further() -> None:
    server: Any = Queueing()
    stream, call = opened(server)
    call.unsent_bytes = 2 << 20
    stream.on_message(message(0))
    assert call.is_paused

    call.unsent_bytes = 0
    stream.on_drained()

    assert not call.is_paused


def test_answers_keep_the_order_of_the_requests_and_the_stream_ends_after_the_last() -> None:
    """GRPC-031, GRPC-032."""
    server: Any = Queueing()
    stream, call = opened(server)
    for number in range(3):
        stream.on_message(message(number))
    stream.on_end()

    for number in (2, 0, 1):
        assert not call.is_finished
        server.requests[number].cancel()

    assert [item.infer_response.id for item in call.sent] == ["0", "1", "2"]
    assert call.is_finished


def test_requests_that_an_answer_makes_room_for_do_not_overtake_it() -> None:
    """What is sent is taken at once, which lets a further request in, which fails at once."""
    server: Any = Queueing()
    stream, call = opened(server)
    send = call.send
    late = [message(300), message(301)]

    def send_and_take(parts: list[Any]) -> None:
        send(parts)
        if late:
            stream.on_message(late.pop(0))
            server.requests[-1].cancel()
        stream.on_drained()

    call.send = send_and_take  # type: ignore[method-assign]
    for number in range(3):
        stream.on_message(message(number))
    for number in (2, 1, 0):
        server.requests[number].cancel()

    assert [item.infer_response.id for item in call.sent] == ["0", "1", "2", "300", "301"]


def test_the_first_error_ends_a_stream_that_wants_real_errors() -> None:
    """GRPC-033."""
    server: Any = Queueing()
    stream, call = opened(server, triton_grpc_error="true")
    for number in range(3):
        stream.on_message(message(number))

    server.requests[0].cancel()

    assert call.failed == (GrpcStatus.CANCELLED, "gone")
    assert call.sent == []
    assert [request.is_cancelled for request in server.requests] == [True] * 3


def test_a_decoupled_answer_for_a_client_that_never_reads_ends_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server: Any = Queueing(is_decoupled=True)
    stream, call = opened(server)
    stream.on_message(message(0))
    call.unsent_bytes = 300 << 20

    server.requests[0].on_response(InferenceResponse("m", 1, is_final=False))

    assert call.failed is not None
    assert call.failed[0] is GrpcStatus.RESOURCE_EXHAUSTED
    assert server.requests[0].is_cancelled
    assert "does not read" in caplog.text


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
