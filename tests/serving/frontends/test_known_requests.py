"""Requests whose JSON has come before: they get their own data, and the same checks and errors."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serving.client_memory import ClientMemory
from serving.errors import ServingError
from serving.frontends import http_infer
from serving.frontends.http_messages import HttpRequest, HttpResponse, ResponseStream
from serving.frontends.http_routes import HttpRoutes
from serving.frontends.vendor_body import translated
from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server import ModelServer
from serving.tracing.tracer import Tracer

_CONFIG = """
backend: "identity" max_batch_size: 0
input {{ name: "IN" data_type: TYPE_FP32 dims: [ {dims} ] {more} }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ {dims} ] }}
"""


class Replied(asyncio.Future[HttpResponse]):
    def __call__(self, response: HttpResponse) -> None:
        self.set_result(response)

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        raise AssertionError("infer never streams")


class Door:
    """Sends requests to the routes, without a socket."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.routes = HttpRoutes(server, FrontendOptions(), ClientMemory(), Tracer())

    @property
    def kept(self) -> list[bytes]:
        return [text for _, text in self.routes._infer._known]

    async def ask(
        self, model: str, header: dict[str, Any], data: bytes, **headers: bytes
    ) -> HttpResponse:
        return await self._handle(self.request(model, header, data, **headers))

    def request(
        self, model: str, header: dict[str, Any], data: bytes, **headers: bytes
    ) -> HttpRequest:
        text = json.dumps(header).encode()
        named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
        named[b"inference-header-content-length"] = b"%d" % len(text)
        target = f"/v2/models/{model}/infer".encode()
        return HttpRequest(b"POST", target, named, memoryview(text + data))

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        reply = Replied()
        self.routes.handle(request, reply)
        return await asyncio.wait_for(reply, 10)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    _write(tmp_path, "fixed", "2")
    _write(tmp_path, "open", "-1")
    _write(tmp_path, "reshaped", "1, 2", "reshape { shape: [ 2 ] }")
    server = ModelServer(
        ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT, load_models=("*",))
    )
    await server.start()
    yield Door(server)
    await server.stop()


def _write(root: Path, name: str, dims: str, more: str = "") -> None:
    (root / name / "1").mkdir(parents=True, exist_ok=True)
    (root / name / "config.pbtxt").write_text(_CONFIG.format(dims=dims, more=more))


def header(*shape: int, size: int = 8, **members: Any) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": "IN", "datatype": "FP32", "shape": list(shape)}
    tensor["parameters"] = {"binary_data_size": size}
    outputs = [{"name": "OUT", "parameters": {"binary_data": True}}]
    return {"inputs": [tensor], "outputs": outputs} | members


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def parts(response: HttpResponse) -> tuple[Any, bytes]:
    body = b"".join(map(bytes, response.parts))
    length = dict(response.headers).get(b"Inference-Header-Content-Length")
    size = len(body) if length is None else int(length)
    return json.loads(body[:size]), body[size:]


async def test_each_request_gets_its_own_data(door: Door) -> None:
    answers = [await door.ask("fixed", header(2), floats(n, n + 1)) for n in range(4)]

    assert [parts(answer)[1] for answer in answers] == [floats(n, n + 1) for n in range(4)]
    assert len({json.dumps(parts(answer)[0]) for answer in answers}) == 1
    first, *_, last = answers
    assert (first.status, first.content_type, first.headers) == (
        last.status,
        last.content_type,
        last.headers,
    )
    assert b"Content-Length: %d\r\n" % last.size in last.head
    assert len(door.kept) == 1


async def test_outputs_that_are_binary_by_default_stay_so(door: Door) -> None:
    """`binary_data_output` stands for all outputs, as tritonclient asks for them."""
    asked = header(2, parameters={"binary_data_output": True})
    del asked["outputs"]
    answers = [await door.ask("fixed", asked, floats(n, n + 1)) for n in range(3)]

    assert [parts(answer)[1] for answer in answers] == [floats(n, n + 1) for n in range(3)]
    assert len(door.kept) == 1


async def test_counted_like_any_other(door: Door) -> None:
    for _ in range(3):
        await door.ask("fixed", header(2), floats(1, 2))

    (row,) = door.server.model_statistics("fixed")
    assert row["inference_stats"]["success"]["count"] == 3


async def test_data_of_another_size_is_refused_as_ever(door: Door) -> None:
    first = await door.ask("fixed", header(2), floats(1, 2, 3))
    assert first.status == 400
    await door.ask("fixed", header(2), floats(1, 2))

    again = await door.ask("fixed", header(2), floats(1, 2, 3))

    assert parts(again) == parts(first)


async def test_what_the_checks_refuse_is_never_kept(door: Door) -> None:
    for _ in range(2):
        response = await door.ask("fixed", header(3, size=12), floats(1, 2, 3))
        assert response.status == 400
    assert door.kept == []


async def test_a_model_that_is_loaded_again_with_another_shape(door: Door) -> None:
    await door.ask("fixed", header(2), floats(1, 2))
    config = _CONFIG.format(dims="3", more="") + 'name: "fixed"'
    from google.protobuf import json_format, text_format

    from serving.config.protobuf import pb

    text = json_format.MessageToJson(text_format.Parse(config, pb.ModelConfig()))
    await door.server.load_model("fixed", config_override=text)

    response = await door.ask("fixed", header(2), floats(1, 2))

    assert response.status == 400
    assert b"unexpected shape" in bytes(response.parts[0])


async def test_a_model_that_is_unloaded_keeps_nothing(door: Door) -> None:
    await door.ask("fixed", header(2), floats(1, 2))
    await door.server.unload_model("fixed")
    await door.server.settled()

    assert door.kept == []
    assert (await door.ask("fixed", header(2), floats(1, 2))).status in (400, 404, 503)


async def test_other_shapes_have_other_answers(door: Door) -> None:
    for _ in range(2):
        for count in (1, 2, 3):
            data = floats(*range(count))
            answer = await door.ask("open", header(count, size=4 * count), data)
            told, got = parts(answer)
            assert (told["outputs"][0]["shape"], got) == ([count], data)
    assert len(door.kept) == 3


@pytest.mark.parametrize(
    "members",
    [
        {"id": "one"},
        {"parameters": {"priority": 1}},
        {"parameters": {"timeout": 1000}},
        {"parameters": {"my": "own"}},
        {"parameters": {"sequence_id": 3, "sequence_start": True}},
        {"outputs": []},
        {"outputs": [{"name": "OUT", "parameters": {"classification": 1, "binary_data": True}}]},
        {"outputs": [{"name": "OUT"}]},
    ],
)
async def test_what_is_not_plain_is_not_kept(door: Door, members: dict[str, Any]) -> None:
    answers = [await door.ask("fixed", header(2, **members), floats(1, 2)) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 200]
    assert parts(answers[0]) == parts(answers[1])
    assert door.kept == []


async def test_a_reshaped_input_is_decoded_each_time(door: Door) -> None:
    for _ in range(2):
        response = await door.ask("reshaped", header(1, 2), floats(1, 2))
        assert response.status in (200, 500)  # what the model itself makes of it
    assert door.kept == []


async def test_compressed_answers_and_bodies_go_the_usual_way(door: Door) -> None:
    await door.ask("fixed", header(2), floats(1, 2))

    packed = await door.ask("fixed", header(2), floats(1, 2), accept_encoding=b"gzip")
    refused = await door.ask("fixed", header(2), floats(1, 2), content_encoding=b"gzip")

    assert (b"Content-Encoding", b"gzip") in packed.headers
    assert packed.head == b""
    assert refused.status == 400


async def test_a_platform_gets_its_own_content_type(door: Door) -> None:
    for _ in range(3):
        reply = Replied()
        request = door.request("fixed", header(2), floats(1, 2))
        ordinary, vendor = translated(request, "/v2/models/fixed/infer", reply, b"sagemaker")
        door.routes.handle(ordinary, vendor)
        response = await reply
        assert response.content_type.startswith(b"application/vnd.sagemaker")
        assert response.head == b""


async def test_only_so_many_are_kept(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_infer, "_MAX_KNOWN", 2)
    for count in range(1, 6):
        await door.ask("open", header(count, size=4 * count), floats(*range(count)))

    assert len(door.kept) <= 2


async def test_a_server_that_stops_refuses_known_requests(door: Door) -> None:
    await door.ask("fixed", header(2), floats(1, 2))
    await door.server.stop()

    assert (await door.ask("fixed", header(2), floats(1, 2))).status >= 400
    with pytest.raises(ServingError):
        door.server.receiver("fixed")
