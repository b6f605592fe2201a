"""SageMaker's and Vertex AI's routes on a server of their own. TOOL-080, TOOL-081, REP-069."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.frontends import start_frontends
from serving.options import (
    ControlMode,
    FrontendOptions,
    SageMakerOptions,
    ServerOptions,
    VertexOptions,
)
from serving.restrictions import parse
from serving.server import ModelServer
from tests.serving.frontends.raw_http import RawClient, RawResponse
from tests.serving.model_files import write_ensemble, write_identity

VALUES = [1.0, 2.0, 3.0, 4.0]
TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4]}
BODY = json.dumps({"inputs": [{**TENSOR, "data": VALUES}]}).encode()
SAGEMAKER_TYPE = "application/vnd.sagemaker-triton.binary+json;json-header-size="
VERTEX_TYPE = "application/vnd.vertex-ai-triton.binary+json;json-header-size="


def binary_body() -> tuple[bytes, int]:
    members = {
        "inputs": [{**TENSOR, "parameters": {"binary_data_size": 16}}],
        "parameters": {"binary_data_output": True},
    }
    head = json.dumps(members).encode()
    return head + np.array(VALUES, np.float32).tobytes(), len(head)


def values_of(answer: RawResponse) -> list[float]:
    assert answer.status == 200, answer.body
    values: list[float] = answer.json["outputs"][0]["data"]
    return values


@asynccontextmanager
async def platform(root: Path, **options: Any) -> AsyncIterator[RawClient]:
    """A client of the platform's port; every model of `root` is loaded."""
    core = ModelServer(
        ServerOptions((root,), model_control_mode=ControlMode.EXPLICIT, load_models=("*",))
    )
    closed: dict[str, Any] = {"allow_http": False, "allow_grpc": False, "allow_metrics": False}
    frontends = await start_frontends(core, FrontendOptions(**closed, **options))
    await core.start()
    client = await RawClient.connect(frontends.sagemaker_port or frontends.vertex_port)
    try:
        yield client
    finally:
        await client.close()
        await core.stop()
        await frontends.stop()


def sagemaker(**options: Any) -> dict[str, Any]:
    restricted = (parse("inference,health:x-key=1"),)  # which SageMaker knows nothing of
    return {
        "sagemaker": SageMakerOptions(True, port=0, **options),
        "http_restricted": restricted,
    }


def vertex(**options: Any) -> dict[str, Any]:
    routes = {"predict_route": "/p/redict", "health_route": "/he/alth"}
    return {"vertex": VertexOptions(True, port=0, **routes, **options)}


async def test_tool_080_ping_and_invocations_of_the_default_model(tmp_path: Path) -> None:
    write_identity(tmp_path, "a b")
    write_identity(tmp_path, "other")
    async with platform(tmp_path, **sagemaker(default_model="a b")) as client:
        assert (await client.request("GET", "/ping")).status == 200
        answer = await client.request("POST", "/invocations", BODY)
        assert values_of(answer) == VALUES
        assert answer.json["model_name"] == "a b"
        for method, path, status in (
            ("GET", "/invocations", 405),
            ("PUT", "/ping", 405),
            ("GET", "/v2", 400),
            ("GET", "/", 400),
            ("PUT", "/models/a", 400),
        ):
            assert (await client.request(method, path)).status == status


async def test_tool_080_ping_tells_ready_or_live(tmp_path: Path) -> None:
    async def ping(mode: str) -> int:
        core = ModelServer(ServerOptions((tmp_path,)))
        options = FrontendOptions(
            allow_http=False,
            allow_grpc=False,
            allow_metrics=False,
            sagemaker=SageMakerOptions(True, port=0, ping_mode=mode),
        )
        frontends = await start_frontends(core, options)  # live, and not ready before its start
        client = await RawClient.connect(frontends.sagemaker_port)
        status = (await client.request("GET", "/ping")).status
        await client.close()
        await frontends.stop()
        return status

    assert [await ping("ready"), await ping("live")] == [400, 200]


async def test_tool_080_the_content_type_tells_where_binary_tensors_begin(tmp_path: Path) -> None:
    write_identity(tmp_path, "m")
    body, size = binary_body()
    async with platform(tmp_path, **sagemaker()) as client:
        answer = await client.request(
            "POST", "/invocations", body, Content_Type=f"{SAGEMAKER_TYPE}{size}"
        )
        kind, _, length = answer.headers["content-type"].rpartition("=")
        wrong = await client.request(
            "POST", "/invocations", body, Content_Type=SAGEMAKER_TYPE + "x"
        )

    assert kind + "=" == SAGEMAKER_TYPE
    assert np.frombuffer(answer.body[int(length) :], np.float32).tolist() == VALUES
    assert wrong.status == 400


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
async def test_tool_080_invocations_can_be_generate(tmp_path: Path, kind: str) -> None:
    write_identity(tmp_path, "m")
    async with platform(tmp_path, **sagemaker(inference_type=kind)) as client:
        body = json.dumps({"INPUT0": VALUES}).encode()
        answer = await client.request("POST", "/invocations", body)

    data = answer.body.removeprefix(b"data: ")
    assert (answer.status, json.loads(data)["OUTPUT0"]) == (200, VALUES)
    assert answer.headers["content-type"].startswith(
        "application/json" if kind == "generate" else "text/event-stream"
    )


async def test_tool_080_invocations_without_a_default_need_one_model(tmp_path: Path) -> None:
    async with platform(tmp_path, **sagemaker()) as client:
        answer = await client.request("POST", "/invocations", BODY)

    assert answer.status == 400
    assert "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME" in answer.json["error"]


async def test_rep_069_models_come_and_go_with_their_repositories(tmp_path: Path) -> None:
    """TOOL-080: load, list, get, invoke, unload; the hash is the name whatever the config says."""
    (tmp_path / "none").mkdir()
    places = [tmp_path / name / "model" for name in ("one", "two")]
    for place in places:
        place.mkdir(parents=True)
        write_identity(place, "same", extra='name: "same"\n')
    rows = [{"modelName": f"h{n}", "modelUrl": str(place)} for n, place in enumerate(places)]

    async with platform(tmp_path / "none", **sagemaker()) as client:

        async def load(name: str, url: object) -> int:
            wanted = json.dumps({"model_name": name, "url": url}).encode()
            return (await client.request("POST", "/models", wanted)).status

        assert [await load(row["modelName"], row["modelUrl"]) for row in rows] == [200, 200]
        assert (await client.request("GET", "/models")).json == {"models": rows}
        assert (await client.request("GET", "/models/h0")).json == rows[0]
        answer = await client.request(
            "POST", "/models/h1/invoke", BODY, X_Amzn_SageMaker_Target_Model="two.tar.gz"
        )
        assert (values_of(answer), answer.json["model_name"]) == (VALUES, "h1")

        assert await load("h0", rows[0]["modelUrl"]) == 409  # this name is taken,
        assert await load("h2", rows[0]["modelUrl"]) == 409  # and so is this repository
        assert (await client.request("DELETE", "/models/h0")).status == 200
        for method, path in (
            ("GET", "/models/h0"),
            ("DELETE", "/models/h0"),
            ("POST", "/models/h0/invoke"),
        ):
            assert (await client.request(method, path)).status == 404
        assert (await client.request("GET", "/models")).json == {"models": rows[1:]}
        assert await load("h0", rows[0]["modelUrl"]) == 200  # after an unload it can come back


async def test_tool_080_an_ensemble_comes_with_its_parts(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    place = tmp_path / "model"
    place.mkdir()
    write_identity(place, "part")
    write_ensemble(place, "whole", "part", "part")
    async with platform(tmp_path / "none", **sagemaker()) as client:
        wanted = json.dumps({"model_name": "hash", "url": str(place)}).encode()
        assert (await client.request("POST", "/models", wanted)).status == 200
        for target, name in (("whole.tar.gz", "hash"), ("part", "part"), ("\xff", "hash")):
            answer = await client.request(
                "POST", "/models/hash/invoke", BODY, X_Amzn_SageMaker_Target_Model=target
            )
            assert (values_of(answer), answer.json["model_name"]) == (VALUES, name)
        assert (await client.request("DELETE", "/models/hash")).status == 200


async def test_tool_080_of_several_models_the_first_by_name_is_served(tmp_path: Path) -> None:
    """The others are there for it to call."""
    (tmp_path / "none").mkdir()
    place = tmp_path / "model"
    place.mkdir()
    write_identity(place, "a")
    write_identity(place, "b")
    async with platform(tmp_path / "none", **sagemaker()) as client:
        wanted = json.dumps({"model_name": "hash", "url": str(place)}).encode()
        assert (await client.request("POST", "/models", wanted)).status == 200
        assert values_of(await client.request("POST", "/models/hash/invoke", BODY)) == VALUES


async def test_tool_080_what_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "link").symlink_to("/proc")
    broken = tmp_path / "broken"
    broken.mkdir()
    write_identity(broken, "m", extra="nonsense")
    async with platform(tmp_path / "none", **sagemaker()) as client:

        async def refused(body: object) -> tuple[int, str]:
            answer = await client.request("POST", "/models", json.dumps(body).encode())
            return answer.status, answer.json["error"]

        for url, words in (
            ("/proc/self", "not below /dev, /proc, /sys"),
            (f"{tmp_path}/none/../link", "not below /dev, /proc, /sys"),
            ("relative", "absolute path"),
            (f"{tmp_path}/nowhere", "not a valid directory"),
            (f"{tmp_path}/none", "holds no model"),
            (str(broken), "nonsense"),
            ("", "'url' must be a string"),
        ):
            status, told = await refused({"model_name": "h", "url": url})
            assert (status, words in told) == (400, True), told
        assert (await refused({"model_name": "../h", "url": str(broken)}))[0] == 400
        assert (await refused([]))[0] == 400
        assert (await client.request("GET", "/models")).json == {"models": []}


async def test_tool_080_want_of_memory_is_507(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serving.errors import ModelLoadError

    async def load(*_: object) -> None:
        raise ModelLoadError("load failed for model 'h': CUDA out of memory")

    place = tmp_path / "model"
    place.mkdir()
    write_identity(place, "m")
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(ModelServer, "load_model", load)
    async with platform(tmp_path / "none", **sagemaker()) as client:
        wanted = json.dumps({"model_name": "h", "url": str(place)}).encode()
        assert (await client.request("POST", "/models", wanted)).status == 507


async def test_tool_081_health_and_predict_are_where_the_platform_wants_them(
    tmp_path: Path,
) -> None:
    write_identity(tmp_path, "only")
    body, size = binary_body()
    async with platform(tmp_path, **vertex()) as client:
        assert (await client.request("GET", "/he/alth")).status == 200
        assert values_of(await client.request("POST", "/p/redict", BODY)) == VALUES
        answer = await client.request(
            "POST", "/p/redict", body, Content_Type=f"{VERTEX_TYPE}{size}"
        )
        assert answer.headers["content-type"].startswith(VERTEX_TYPE)
        for method, path, status in (
            ("GET", "/p/redict", 405),
            ("POST", "/he/alth", 405),
            ("GET", "/v2/health/ready", 400),
        ):
            assert (await client.request(method, path)).status == status


async def test_tool_081_the_default_model_is_named_or_the_only_one(tmp_path: Path) -> None:
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "b")
    async with platform(tmp_path, **vertex(default_model="b")) as client:
        answer = await client.request("POST", "/p/redict", BODY)
        assert (values_of(answer), answer.json["model_name"]) == (VALUES, "b")
    async with platform(tmp_path, **vertex()) as client:
        answer = await client.request("POST", "/p/redict", BODY)
        assert (answer.status, "--vertex-ai-default-model" in answer.json["error"]) == (400, True)


async def test_tool_081_a_header_leads_to_routes_that_read_or_infer(tmp_path: Path) -> None:
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "b")
    restricted = (parse("statistics:x-key=1"),)
    async with platform(tmp_path, **vertex(), http_restricted=restricted) as client:

        async def redirected(path: str, body: bytes = b"{}") -> RawResponse:
            return await client.request("POST", "/p/redict", body, X_Vertex_Ai_Triton_Redirect=path)

        assert (await redirected("/v2/models/a")).json["name"] == "a"
        assert (await redirected("v2/health/live")).status == 200
        assert (await redirected("/v2/models/a/infer", BODY)).json["model_name"] == "a"
        assert len((await redirected("/v2/repository/index")).json) == 2
        for path, status in (
            ("/v2/repository/models/a/unload", 403),
            ("/v2/repository/models/a/load", 403),
            ("/v2/systemsharedmemory/region/r/register", 403),
            ("/v1/models/a/unload", 403),
            ("/v1/models/a/load", 403),
            ("/v1/models", 200),
            ("/v2/systemsharedmemory/status", 200),
            ("/v2/trace/setting", 200),
            ("/v2/models/stats", 403),
            ("/nowhere", 400),
        ):
            assert (await redirected(path)).status == status, path
