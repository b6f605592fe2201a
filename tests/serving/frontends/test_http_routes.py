"""Routes of the running server, by raw requests: statuses and bodies in Triton's form."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.serving.frontends.process import ServerProcess
from tests.serving.frontends.raw_http import RawClient, RawResponse, message

INFER = "/v2/models/identity/infer"
BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}


@pytest.fixture
async def client(served: ServerProcess) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(served.ports["HTTP"])
    yield client
    await client.close()


async def post(client: RawClient, path: str, body: Any = b"", **headers: str) -> RawResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await client.request("POST", path, data, **headers)


async def test_quoted_model_names_are_read(client: RawClient):
    answer = await client.request("GET", "/v2/models/caf%C3%A9%20%E2%98%95")

    assert answer.json == {"error": "Request for unknown model: 'caf\u00e9 \u2615' is not found"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/health/live", 200),
        ("GET", "/v2/health/ready?x=1", 200),
        ("GET", "/v2", 200),
        ("GET", "/v2/models/identity", 200),
        ("GET", "/v2/models/identity/versions/01", 200),
        ("GET", "/v2/models/identity/versions/" + "0" * 30 + "1", 200),
        ("GET", "/v2/models/identity/versions/" + "0" * 30 + "12", 404),
        ("GET", "/v2/models/identity/ready", 200),
        ("GET", "/v2/models/identity/config", 200),
        ("GET", "/v2/models/identity/stats", 200),
        ("GET", "/v2/models/stats", 200),
        ("POST", "/v2/repository/index", 200),
        ("GET", "http://proxied:8000/v2?x=1", 200),
        ("GET", "/v2/models/ident%69ty/ready", 200),
        ("GET", "/v2/models/identity%2Fready", 404),
        ("POST", "/v2/repository/models/%2e%2e/load", 400),
        ("GET", "/v2/", 404),
        ("GET", "/v2/models/identity/", 404),
        ("GET", "/v2/models/identity/versions/x", 404),
        ("GET", "/v2/models//ready", 404),
        ("GET", "/v2/models/identity/versions/1/trace/setting", 404),
        ("GET", "/v2/models/identity/versions/99999999999999999999999", 404),
        ("GET", "/v2/models/nope", 404),
        ("GET", "/v2/models/nope/ready", 404),
        ("GET", "/v2/models/nope/stats", 400),
        ("POST", "/v2", 405),
        ("GET", INFER, 405),
        ("DELETE", INFER, 405),
        ("GET", "/v2/repository/index", 405),
        ("POST", "/v2/repository/r/models/m/load", 501),
        ("GET", "/v2/systemsharedmemory/status", 200),
        ("GET", "/v2/systemsharedmemory/region/r/status", 404),
        ("POST", "/v2/systemsharedmemory/unregister", 501),
        ("POST", "/v2/systemsharedmemory/region/r/status", 405),
        ("POST", "/v2/cudasharedmemory/region/r/register", 501),
        ("GET", "/v2/trace/setting", 200),
        ("GET", "/v2/models/identity/trace/setting", 200),
        ("GET", "/v2/models/nope/trace/setting", 400),
        ("POST", "/v2/trace/setting", 400),
    ],
)
async def test_every_route_answers_with_its_status(
    client: RawClient, method: str, path: str, status: int
) -> None:
    response = await client.request(method, path)

    assert response.status == status
    if status >= 400:
        assert list(response.json) == ["error"]


async def test_index_lists_models_and_can_ask_for_ready_ones(client: RawClient) -> None:
    rows = (await post(client, "/v2/repository/index", {"ready": True})).json

    assert {"name": "identity", "version": "1", "state": "READY"} in rows
    assert (await post(client, "/v2/repository/index", {"ready": 1})).status == 400
    assert (await post(client, "/v2/repository/index", b"{")).status == 400
    assert (await post(client, "/v2/repository/index", [])).status == 400


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"config": 5}, "config"),
        ({"zz": "x"}, "zz"),
        ({"file:1/model.onnx": "***"}, "base64"),
        ([], "parameters"),
        ({"config": "{"}, "labelled"),
    ],
)
async def test_wrong_load_parameters_are_refused(
    client: RawClient, parameters: Any, words: str
) -> None:
    path = "/v2/repository/models/labelled/load"

    response = await post(client, path, {"parameters": parameters})

    assert response.status == 400
    assert words in response.json["error"]
    assert (await client.request("GET", "/v2/models/labelled/ready")).status == 200


async def test_a_model_can_be_loaded_from_files_in_the_request(client: RawClient) -> None:
    config = {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    }
    content = base64.b64encode(b"x").decode()
    parameters = {"config": json.dumps(config), "file:3/data.bin": content}

    loaded = await post(client, "/v2/repository/models/sent/load", {"parameters": parameters})

    assert (loaded.status, loaded.body) == (200, b"")
    assert (await client.request("GET", "/v2/models/sent/versions/3/ready")).status == 200
    assert (await post(client, "/v2/repository/models/sent/unload")).status == 200


async def test_wrong_unload_parameters_are_refused(client: RawClient) -> None:
    body = {"parameters": {"unload_dependents": "yes"}}

    assert (await post(client, "/v2/repository/models/labelled/unload", body)).status == 400


async def test_compression_both_ways(client: RawClient) -> None:
    body = gzip.compress(json.dumps(BODY).encode())

    response = await post(client, INFER, body, Content_Encoding="gzip", Accept_Encoding="gzip")

    assert response.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(response.body))["outputs"][0]["data"] == [1.0, 2.0]


async def test_unknown_content_encoding_is_unsupported(client: RawClient) -> None:
    assert (await post(client, INFER, BODY, Content_Encoding="br")).status == 501


async def test_raw_body_in_and_binary_out(client: RawClient) -> None:
    response = await post(client, INFER, b"\0" * 8, Inference_Header_Content_Length="0")

    size = int(response.headers["inference-header-content-length"])
    assert response.headers["content-type"] == "application/octet-stream"
    assert json.loads(response.body[:size])["outputs"][0]["shape"] == [1, 2]
    assert response.body[size:] == b"\0" * 8


async def test_a_json_body_above_the_limit_is_refused_before_it_is_read(
    client: RawClient,
) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {65 * 1024 * 1024}\r\n\r\n"
    await client.send(head.encode())

    response = await client.receive()

    assert response.status == 400
    assert "--http-max-input-size" in response.json["error"]


async def test_pipelined_inferences_come_back_in_order(client: RawClient) -> None:
    body = json.dumps(BODY | {"id": "slow"}).encode().replace(b"[1, 2]", b"[2]", 1)
    fast = json.dumps(BODY | {"id": "fast"}).encode()
    await client.send(message("POST", "/v2/models/slow/infer", body) + message("POST", INFER, fast))

    assert [(await client.receive()).json["id"] for _ in range(2)] == ["slow", "fast"]


async def test_a_client_that_leaves_gives_its_place_in_the_queue_back(
    served: ServerProcess, client: RawClient
) -> None:
    body = json.dumps(BODY).encode().replace(b"[1, 2]", b"[2]", 1)
    metrics = await RawClient.connect(served.ports["metrics"])
    leaving = await RawClient.connect(served.ports["HTTP"])
    await leaving.send(message("POST", "/v2/models/slow/infer", body) * 20)
    await leaving.close()

    answered = await post(client, "/v2/models/slow/infer", body)

    assert answered.status == 200
    page = (await metrics.request("GET", "/metrics")).body.decode()
    cancelled = 'nv_inference_request_failure{model="slow",version="1",reason="CANCELED"} '
    assert int(page.partition(cancelled)[2].splitlines()[0]) >= 18
    await metrics.close()


async def test_metrics_port_serves_metrics_only(served: ServerProcess) -> None:
    client = await RawClient.connect(served.ports["metrics"])

    page = await client.request("GET", "/metrics")

    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert b'nv_inference_count{model="identity",version="1"}' in page.body
    assert b"nv_cpu_memory_total_bytes" in page.body
    assert (await client.request("GET", "/other")).body == b""
    assert (await client.request("POST", "/metrics")).status == 405
    await client.close()


async def test_generate_and_its_stream(client: RawClient) -> None:
    path = "/v2/models/strings/generate"

    once = await post(client, path, {"INPUT0": "hi", "id": "1"})
    stream = await post(client, path + "_stream", {"INPUT0": "hi"})

    assert once.json == {
        "id": "1",
        "model_name": "strings",
        "model_version": "1",
        "OUTPUT0": "hi",
    }
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.body.startswith(b"data: {")
    assert stream.body.endswith(b"}\n\n")
    assert (await post(client, path, {"INPUT0": 5})).status == 400
    assert (await post(client, path, BODY, Content_Encoding="gzip")).status == 400


async def test_statistics_follow_a_request(client: RawClient) -> None:
    async def count() -> int:
        rows = (await client.request("GET", "/v2/models/half/versions/1/stats")).json
        return int(rows["model_stats"][0]["inference_stats"]["success"]["count"])

    before = await count()
    await post(client, "/v2/models/half/infer", b"\0\0", Inference_Header_Content_Length="0")

    assert await count() == before + 1


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "byte 0"),
        ([], 400, "JSON object"),
        ({"log_info": 1}, 400, "log_info"),
        ({"log_verbose_level": -1}, 400, "log_verbose_level"),
        ({"log_verbose_level": True}, 400, "log_verbose_level"),
        ({"log_format": 5}, 400, "log_format"),
        ({"log_format": "xml"}, 400, "ISO8601"),
        ({"log_file": "x"}, 501, "log_file"),
        ({"log_warning": False, "log_file": "x"}, 501, "log_file"),
    ],
)
async def test_wrong_log_settings_change_nothing(
    client: RawClient, body: Any, status: int, words: str
) -> None:
    before = (await client.request("GET", "/v2/logging")).json

    response = await post(client, "/v2/logging", body)

    assert response.status == status
    assert words in response.json["error"]
    assert (await client.request("GET", "/v2/logging")).json == before
