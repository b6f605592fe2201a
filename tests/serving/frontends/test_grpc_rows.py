"""Rules of the gRPC protocol that no other test states, over real connections (GRPC- rows)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb

from serving.frontends import grpc_wire
from serving.options import ControlMode, GrpcOptions
from tests.serving.frontends.doors import Doors, infer_message, open_doors
from tests.waiting import wait_until

INFER = "/inference.GRPCInferenceService/ModelInfer"
STATUSES = {
    "UNKNOWN": "UNKNOWN",
    "INTERNAL": "INTERNAL",
    "NOT_FOUND": "NOT_FOUND",
    "INVALID_ARG": "INVALID_ARGUMENT",
    "UNAVAILABLE": "UNAVAILABLE",
    "UNSUPPORTED": "UNIMPLEMENTED",
    "ALREADY_EXISTS": "ALREADY_EXISTS",
    "CANCELLED": "CANCELLED",
}


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    options = GrpcOptions(header_forward_pattern="x-fwd|triton_x|^priority$")
    async with open_doors(
        tmp_path,
        {"allow_http": True, "grpc": options},
        model_control_mode=ControlMode.EXPLICIT,
        load_models=("identity", "half", "slow"),
    ) as doors:
        yield doors


async def error_of(call: Any) -> tuple[str, str]:
    """Name of the status, and the text."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_every_class_of_error_has_its_status_and_its_text(doors: Doors) -> None:
    """GRPC-A01 to A08: the text is the message, and there are no details beside it."""
    for code, status in STATUSES.items():
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await doors.stub.ModelInfer(infer_message(f"error-{code}"))

        assert caught.value.code().name == status
        assert caught.value.details() == f"it is error-{code}"
        keys = {key for key, _ in caught.value.trailing_metadata() or ()}
        assert "grpc-status-details-bin" not in keys


async def test_a_server_that_stops_is_unavailable(doors: Doors) -> None:
    """GRPC-A10: what it has accepted is answered, what comes later is refused."""
    message = infer_message("slow")
    message.inputs[0].shape[:] = [2]
    running = doors.stub.ModelInfer(message)
    await wait_until(lambda: doors.server.seen)
    stopping = asyncio.create_task(doors.server.stop())
    await wait_until(lambda: not doors.server.is_ready())

    status, text = await error_of(doors.stub.ModelInfer(infer_message()))

    assert (status, "stopping" in text) == ("UNAVAILABLE", True)
    assert (await running).outputs[0].name == "OUTPUT0"
    await stopping


async def test_readiness_is_an_answer_and_no_error(tmp_path: Path) -> None:
    """GRPC-001, GRPC-002, GRPC-003, GRPC-017: also of the standard health service."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.pbtxt").write_text('backend: "nobody"')
    async with open_doors(tmp_path, {"allow_http": True}, exit_on_error=False) as doors:
        health = health_pb2_grpc.HealthStub(doors.channel)

        assert (await doors.stub.ServerLive(pb.ServerLiveRequest())).live
        assert not (await doors.stub.ServerReady(pb.ServerReadyRequest())).ready
        assert (await doors.stub.ModelReady(pb.ModelReadyRequest(name="identity"))).ready
        assert not (await doors.stub.ModelReady(pb.ModelReadyRequest(name="broken"))).ready
        unknown = await error_of(doors.stub.ModelReady(pb.ModelReadyRequest(name="nobody")))
        assert unknown[0] == "NOT_FOUND"
        for service in ("", "whatever"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await error_of(watch.read()))[0] == "UNIMPLEMENTED"


async def test_a_named_repository_is_unsupported(doors: Doors) -> None:
    """GRPC-010, GRPC-011, GRPC-012."""
    for method, message in (
        ("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="r")),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(repository_name="r", model_name="m")),
        (
            "RepositoryModelUnload",
            pb.RepositoryModelUnloadRequest(repository_name="r", model_name="m"),
        ),
    ):
        assert (await error_of(getattr(doors.stub, method)(message)))[0] == "UNIMPLEMENTED"


async def test_a_version_that_is_no_number_is_the_clients_mistake(doors: Doors) -> None:
    """GRPC-003, GRPC-005, GRPC-006, GRPC-009: one that is not there is not found."""
    for method in ("Ready", "Metadata", "Config", "Statistics"):
        ask, message = getattr(doors.stub, f"Model{method}"), getattr(pb, f"Model{method}Request")
        missing = "INVALID_ARGUMENT" if method == "Statistics" else "NOT_FOUND"
        for version, status in (
            ("x", "INVALID_ARGUMENT"),
            ("-1", "INVALID_ARGUMENT"),
            ("7", missing),
        ):
            call = ask(message(name="identity", version=version))
            assert (await error_of(call))[0] == status, (method, version)


async def test_load_parameters_have_their_types(doors: Doors) -> None:
    """GRPC-011, GRPC-012: config is a string, a file bytes, unload_dependents a bool."""
    config = {
        "backend": "identity",
        "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [1]}],
    }
    load = pb.RepositoryModelLoadRequest(model_name="sent")
    load.parameters["config"].string_param = json.dumps(config)
    load.parameters["file:3/data.bin"].bytes_param = b"x"
    await doors.stub.RepositoryModelLoad(load)
    assert (await doors.stub.ModelReady(pb.ModelReadyRequest(name="sent", version="3"))).ready

    for name, kind in (("config", "bytes_param"), ("file:1/a", "string_param"), ("zz", None)):
        wrong = pb.RepositoryModelLoadRequest(model_name="identity")
        setattr(wrong.parameters[name], kind or "string_param", b"x" if kind else "x")
        status, text = await error_of(doors.stub.RepositoryModelLoad(wrong))
        assert (status, name in text) == ("INVALID_ARGUMENT", True)

    unload = pb.RepositoryModelUnloadRequest(model_name="sent")
    unload.parameters["unload_dependents"].string_param = "yes"
    status, text = await error_of(doors.stub.RepositoryModelUnload(unload))
    assert (status, "unload_dependents" in text) == ("INVALID_ARGUMENT", True)


async def test_settings_of_the_wrong_type_are_refused(doors: Doors) -> None:
    """GRPC-015, GRPC-016."""
    trace = pb.TraceSettingRequest(model_name="identity")
    trace.settings["trace_rate"].value.extend(["1", "2"])
    status, text = await error_of(doors.stub.TraceSetting(trace))
    assert (status, "takes one value" in text) == ("INVALID_ARGUMENT", True)

    trace.settings["trace_rate"].value[:] = ["7"]
    changed = await doors.stub.TraceSetting(trace)
    assert list(changed.settings["trace_rate"].value) == ["7"]
    del trace.settings["trace_rate"].value[:]  # an empty list clears
    trace.settings["trace_rate"].SetInParent()
    cleared = await doors.stub.TraceSetting(trace)
    assert list(cleared.settings["trace_rate"].value) == ["1000"]

    everything = pb.TraceSettingRequest(model_name="nobody")
    assert (await error_of(doors.stub.TraceSetting(everything)))[0] == "INVALID_ARGUMENT"


async def test_matching_metadata_are_parameters_and_reserved_names_refused(doors: Doors) -> None:
    """GRPC-027: unary and on a stream; names are in lower case."""
    metadata = (("my-x-fwd-header", "value"), ("other", "no"))
    await doors.stub.ModelInfer(infer_message(), metadata=metadata)
    stream = doors.stub.ModelStreamInfer(iter([infer_message()]), metadata=metadata)
    assert [message.error_message async for message in stream] == [""]
    assert [request.parameters for request in doors.server.seen] == [
        {"my-x-fwd-header": "value"},
        {"my-x-fwd-header": "value"},
    ]

    for name in ("triton_x", "priority"):
        reserved = ((name, "1"),)
        call = doors.stub.ModelInfer(infer_message(), metadata=reserved)
        status, text = await error_of(call)
        assert (status, name in text) == ("INVALID_ARGUMENT", True)


async def test_a_stream_serves_any_number_of_requests_to_any_models(doors: Doors) -> None:
    """GRPC-030, GRPC-031, GRPC-032, GRPC-034, GRPC-035: in their order, and after half close."""
    half = infer_message("half", id="h")
    half.inputs[0].datatype, half.inputs[0].shape[:] = "FP16", [4]
    wrong = infer_message("nobody", id="w")
    requests = [infer_message(id="1"), half, wrong, infer_message(id="2")]

    stream = doors.stub.ModelStreamInfer(iter(requests))
    got = [message async for message in stream]

    assert [message.infer_response.id for message in got] == ["1", "h", "w", "2"]
    assert "nobody" in got[2].error_message
    assert got[2].infer_response.model_name == "nobody"
    for message in (got[0], got[1], got[3]):
        assert message.error_message == ""
        assert message.infer_response.parameters["triton_final_response"].bool_param


async def test_a_stream_ends_with_the_status_of_its_first_error_where_the_call_says_so(
    doors: Doors,
) -> None:
    """GRPC-033: metadata triton_grpc_error; what still waits is cancelled."""

    async def requests() -> AsyncIterator[Any]:
        yield infer_message(id="1")
        slow = infer_message("slow", id="2")
        slow.inputs[0].shape[:] = [2]
        yield slow
        yield slow
        await wait_until(lambda: len(doors.server.seen) == 3)
        yield infer_message("nobody", id="w")
        # grpc.aio tells INTERNAL instead of the status where it still writes at that moment.
        await asyncio.Event().wait()

    stream = doors.stub.ModelStreamInfer(requests(), metadata=(("triton_grpc_error", "true"),))

    async def read() -> None:
        async for message in stream:
            assert message.infer_response.id == "1"

    status, text = await error_of(read())
    assert (status, "nobody" in text) == ("NOT_FOUND", True)
    waiting = [request for request in doors.server.seen if request.id == "2"]
    await wait_until(lambda: [request.is_cancelled for request in waiting] == [True, True])


async def test_messages_are_larger_than_grpcs_default_both_ways(doors: Doors) -> None:
    """GRPC-047: 5 MB, where grpc alone would stop at 4."""
    message = infer_message()
    message.inputs[0].shape[:] = [1, 1_310_720]
    message.raw_input_contents[0] = bytes(5_242_880)
    unlimited = [("grpc.max_receive_message_length", -1)]
    address = f"127.0.0.1:{doors.frontends.grpc_port}"
    async with grpc.aio.insecure_channel(address, options=unlimited) as channel:
        infer = channel.unary_unary(
            INFER,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            answer = await infer(message, compression=compression)
            assert len(answer.raw_output_contents[0]) == 5_242_880  # GRPC-044 too


async def test_a_response_beyond_what_a_message_can_be_is_refused(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GRPC-A11: with a limit of 100 bytes in place of 2 GiB; a stream goes on."""
    monkeypatch.setattr(grpc_wire, "MAX_MESSAGE_BYTES", 100)
    large = infer_message(id="x" * 200)

    for call in (
        doors.stub.ServerMetadata(pb.ServerMetadataRequest()),
        doors.stub.ModelInfer(large),
    ):
        status, text = await error_of(call)
        assert (status, "100 that a gRPC message may have" in text) == ("INVALID_ARGUMENT", True)
    stream = doors.stub.ModelStreamInfer(iter([large, infer_message(id="s")]))
    answers = [message async for message in stream]
    assert "100 that a gRPC message may have" in answers[0].error_message
    assert answers[1].infer_response.id == "s"


async def test_cancelling_a_call_cancels_its_request(doors: Doors) -> None:
    """GRPC-036."""
    message = infer_message("slow")
    message.inputs[0].shape[:] = [2]
    call = doors.stub.ModelInfer(message)
    await wait_until(lambda: doors.server.seen)

    call.cancel()

    await wait_until(lambda: doors.server.seen[0].is_cancelled)
    assert await call.code() is grpc.StatusCode.CANCELLED
