"""Rules of the HTTP protocol that no other test states, over real connections (HTTP- rows)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.frontends.doors import Doors, open_doors
from tests.serving.frontends.raw_http import RawClient, RawResponse

INFER = "/v2/models/identity/infer"
TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    forward = {"http_header_forward_pattern": "(?i)x-fwd|triton_|^priority$", "allow_grpc": False}
    async with open_doors(tmp_path, forward) as doors:
        yield doors


async def post(doors: Doors, path: str, body: Any = b"", **headers: str) -> RawResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await doors.http.request("POST", path, data, **headers)


def infer_body(**members: Any) -> dict[str, Any]:
    return {"inputs": [TENSOR], **members}


STATUSES = {
    "UNKNOWN": 400,
    "INTERNAL": 500,
    "NOT_FOUND": 404,
    "INVALID_ARG": 400,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 400,
    "CANCELLED": 400,
}


async def test_every_class_of_error_has_its_status_and_one_key(doors: Doors) -> None:
    """HTTP-A01 to A08."""
    for code, status in STATUSES.items():
        answer = await post(doors, f"/v2/models/error-{code}/infer", infer_body())

        assert (answer.status, answer.json) == (status, {"error": f"it is error-{code}"})
        assert answer.headers["content-type"] == "application/json"


async def test_loads_are_unavailable_in_mode_none(doors: Doors) -> None:
    """HTTP-A03."""
    assert (await post(doors, "/v2/repository/models/identity/load")).status == 503
    assert (await post(doors, "/v2/repository/models/identity/unload")).status == 503


async def test_health_routes_answer_with_nothing(tmp_path: Path) -> None:
    """HTTP-001, HTTP-002, HTTP-A12: 200, or 400, and an empty body in either case."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.pbtxt").write_text('backend: "nobody"')
    async with open_doors(tmp_path, {"allow_grpc": False}, exit_on_error=False) as doors:
        live = await doors.http.request("GET", "/v2/health/live")
        ready = await doors.http.request("GET", "/v2/health/ready")
        other = await doors.http.request("GET", "/v2/health/other")

    assert (live.status, live.body) == (200, b"")
    assert (ready.status, ready.body) == (400, b"")
    assert other.status == 404


async def test_server_metadata_has_name_version_and_the_extensions(doors: Doors) -> None:
    """HTTP-003."""
    told = (await doors.http.request("GET", "/v2")).json

    assert list(told) == ["name", "version", "extensions"]
    assert told["version"].startswith("2.")
    assert told["extensions"] == [
        "classification",
        "sequence",
        "model_repository",
        "model_repository(unload_dependents)",
        "schedule_policy",
        "model_configuration",
        "system_shared_memory",
        "cuda_shared_memory",
        "binary_tensor_data",
        "parameters",
        "statistics",
        "trace",
        "logging",
    ]


async def test_model_metadata_has_the_batch_axis_first(doors: Doors) -> None:
    """HTTP-004."""
    whole = (await doors.http.request("GET", "/v2/models/identity")).json
    one = (await doors.http.request("GET", "/v2/models/identity/versions/1")).json

    assert whole == one
    assert whole == {
        "name": "identity",
        "versions": ["1"],
        "platform": "identity",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1]}],
    }


async def test_a_named_repository_is_ignored_by_the_index_and_unsupported_elsewhere(
    doors: Doors,
) -> None:
    """HTTP-013."""
    named, plain = [
        (await post(doors, f"/v2/repository{name}/index")).json for name in ("/some", "")
    ]
    assert named == plain
    for verb in ("load", "unload"):
        answer = await post(doors, f"/v2/repository/some/models/identity/{verb}")
        assert answer.status == 501


async def test_unknown_members_are_ignored_and_the_id_comes_back(doors: Doors) -> None:
    """HTTP-030."""
    answer = await post(doors, INFER, infer_body(id="r7", unknown={"a": [1]}))

    assert answer.json["id"] == "r7"
    assert (await post(doors, INFER, infer_body(id=7))).status == 400


@pytest.mark.parametrize(
    "output",
    [
        {"shared_memory_region": "r", "shared_memory_byte_size": 8, "classification": 1},
        {"shared_memory_region": "r", "shared_memory_byte_size": 8, "binary_data": True},
    ],
)
async def test_shared_memory_goes_with_no_other_form_of_an_output(
    doors: Doors, output: dict[str, Any]
) -> None:
    """HTTP-034."""
    outputs = [{"name": "OUTPUT0", "parameters": output}]

    answer = await post(doors, INFER, infer_body(outputs=outputs))

    assert answer.status == 400
    assert "shared_memory_region" in answer.json["error"]


async def test_matching_headers_are_parameters_and_reserved_names_refused(doors: Doors) -> None:
    """HTTP-044: the pattern may match a part of the name."""
    forwarded = await post(doors, INFER, infer_body(), My_X_Fwd_Header="value", Other="no")
    assert forwarded.status == 200
    assert doors.server.seen[-1].parameters == {"My-X-Fwd-Header": "value"}

    for name in ("triton_x", "priority"):
        reserved = RawClient(doors.http.reader, doors.http.writer)
        data = json.dumps(infer_body()).encode()
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n{name}: 1\r\nContent-Length: {len(data)}"
        await reserved.send(head.encode() + b"\r\n\r\n" + data)
        answer = await reserved.receive()
        assert (answer.status, name in answer.json["error"]) == (400, True)


async def test_the_port_speaks_no_tls_and_lives_on(doors: Doors) -> None:
    """HTTP-061: a proxy terminates it; whoever begins with a TLS hello is told off and closed."""
    client = await RawClient.connect(doors.frontends.http_port)
    await client.send(bytes.fromhex("16030100f8010000f40303") + bytes(240))

    assert (await client.receive()).status == 400
    assert await client.is_closed()
    await client.close()
    assert (await doors.http.request("GET", "/v2/health/live")).status == 200


async def test_credentials_are_for_a_proxy_and_let_pass(doors: Doors) -> None:
    """HTTP-062."""
    answer = await doors.http.request("GET", "/v2", Authorization="Basic dTpw")

    assert answer.status == 200


async def test_statistics_of_what_is_not_there_are_the_clients_mistake(doors: Doors) -> None:
    """HTTP-070: without a name all, with one its versions, with a version that one."""
    whole = (await doors.http.request("GET", "/v2/models/stats")).json["model_stats"]
    one = (await doors.http.request("GET", "/v2/models/half/versions/1/stats")).json["model_stats"]

    assert {row["name"] for row in whole} >= {"identity", "half", "strings"}
    assert [(row["name"], row["version"]) for row in one] == [("half", "1")]
    for path in ("nobody/stats", "half/versions/7/stats"):
        assert (await doors.http.request("GET", f"/v2/models/{path}")).status == 400


async def test_a_request_counts_once_and_its_rows_one_by_one(doors: Doors) -> None:
    """HTTP-071."""
    tensor = TENSOR | {"shape": [8, 1], "data": list(range(8))}
    await post(doors, INFER, {"inputs": [tensor]})

    row = (await doors.http.request("GET", "/v2/models/identity/stats")).json["model_stats"][0]

    assert (row["inference_count"], row["execution_count"]) == (8, 1)
    assert {kind: row["inference_stats"][kind]["count"] for kind in ("success", "queue")} == {
        "success": 1,
        "queue": 1,
    }


async def test_settings_want_a_body(doors: Doors) -> None:
    """HTTP-083: unlike index and load, where nothing is fine."""
    assert (await post(doors, "/v2/trace/setting")).status == 400
    assert (await post(doors, "/v2/logging")).status in (400, 501)
    assert (await post(doors, "/v2/repository/index")).status == 200


async def test_unregistering_all_cannot_fail(tmp_path: Path) -> None:
    """HTTP-104: regions are let go of by name, whatever has become of their objects."""
    allowed = {"allow_client_shm": True, "allow_grpc": False}
    async with open_doors(tmp_path, allowed) as doors:
        shared = Path("/dev/shm/conch_test_gone")
        shared.write_bytes(bytes(64))
        for name in "ab":
            body = {"key": "/conch_test_gone", "byte_size": 64}
            path = f"/v2/systemsharedmemory/region/{name}/register"
            assert (await post(doors, path, body)).status == 200
        shared.unlink()

        assert (await post(doors, "/v2/systemsharedmemory/unregister")).status == 200
        left = await doors.http.request("GET", "/v2/systemsharedmemory/status")
        assert left.json == []
