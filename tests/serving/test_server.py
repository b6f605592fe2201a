from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.errors import (
    InvalidArgumentError,
    ModelLoadError,
    NotFoundError,
    ServingError,
    UnavailableError,
)
from serving.options import ControlMode, ServerOptions
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_identity
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until

Make = Callable[..., ModelServer]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    servers: list[ModelServer] = []

    def make_server(**options: Any) -> ModelServer:
        options.setdefault("model_control_mode", ControlMode.EXPLICIT)
        options.setdefault("exit_timeout_secs", 5)
        servers.append(ModelServer(ServerOptions((tmp_path,), **options)))
        return servers[-1]

    yield make_server
    for server in servers:
        await server.stop()


async def started(server: ModelServer) -> ModelServer:
    await server.start()
    return server


def index(server: ModelServer) -> list[str]:
    return rows(server.repository_index())


# Start


async def test_mode_none_loads_everything_and_refuses_load_and_unload(make, tmp_path):
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "b", versions=(1, 2))
    server = await started(make(model_control_mode=ControlMode.NONE))

    assert index(server) == ["a:1 READY", "b:2 READY"]
    assert server.is_ready()
    for refused in (server.load_model("a"), server.unload_model("a")):
        with pytest.raises(UnavailableError, match="explicit model load / unload is not allowed"):
            await refused
    assert index(server) == ["a:1 READY", "b:2 READY"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), ["a:", "b:"]),
        (("b",), ["a:", "b:1 READY"]),
        (("*",), ["a:1 READY", "b:1 READY"]),
    ],
)
async def test_explicit_mode_loads_what_is_named(make, tmp_path, names, expected):
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "b")
    server = await started(make(load_models=names))
    assert index(server) == expected
    assert server.is_ready()


async def test_broken_model_stops_the_start_when_exit_on_error_is_set(make, tmp_path):
    write_identity(tmp_path, "good")
    write_identity(tmp_path, "bad", extra="max_batch_sise: 3\n")
    server = make(model_control_mode=ControlMode.NONE)
    with pytest.raises(ModelLoadError, match=r"load failed for model 'bad': config.pbtxt:5:1: "):
        await server.start()


async def test_broken_model_leaves_the_others_serving_without_exit_on_error(make, tmp_path):
    write_identity(tmp_path, "good")
    write_identity(tmp_path, "bad", extra="max_batch_sise: 3\n")
    server = await started(make(model_control_mode=ControlMode.NONE, exit_on_error=False))

    assert server.is_model_ready("good")
    assert not server.is_model_ready("bad")
    assert not server.is_ready()
    assert index(server)[0].startswith("bad: UNAVAILABLE config.pbtxt:5:1:")


async def test_lenient_readiness_overlooks_a_broken_model(make, tmp_path):
    write_identity(tmp_path, "bad", extra="nonsense\n")
    server = await started(
        make(model_control_mode=ControlMode.NONE, exit_on_error=False, strict_readiness=False)
    )
    assert server.is_ready()


async def test_repository_that_is_no_directory_stops_the_start(tmp_path):
    server = ModelServer(ServerOptions((tmp_path / "nope",)))
    with pytest.raises(InvalidArgumentError, match="is not a valid directory"):
        await server.start()
    await server.stop()


async def test_empty_repository_is_legal(make):
    server = await started(make(model_control_mode=ControlMode.NONE))
    assert server.is_ready()
    assert index(server) == []


async def test_request_during_the_start_is_told_to_come_back(make, tmp_path):
    write_identity(tmp_path, "m")
    server = make(load_models=("m",))
    with pytest.raises(UnavailableError, match="Server is still starting"):
        await server.infer_async(identity_request("m"))
    with pytest.raises(UnavailableError, match="still starting"):
        await server.load_model("m")
    assert server.is_live
    assert not server.is_ready()
    assert server.repository_index() == []


# Config and versions


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("", [10]),
        ("version_policy { latest { num_versions: 2 } }", [2, 10]),
        ("version_policy { all {} }", [1, 2, 10]),
        ("version_policy { specific { versions: [ 1, 10, 77 ] } }", [1, 10]),
    ],
)
async def test_version_policy_selects_among_numeric_directories(make, tmp_path, policy, versions):
    model = write_identity(tmp_path, "m", versions=(1, 2, 10), extra=policy)
    for stray in ("03", "v4", ".ipynb_checkpoints"):
        (model / stray).mkdir()
    (model / "5").write_text("a file")
    server = await started(make(load_models=("m",)))

    assert server.ready_versions("m") == versions
    response = await server.infer_async(identity_request("m"))
    assert response.model_version == 10


async def test_model_without_usable_version_is_refused(make, tmp_path):
    write_identity(tmp_path, "m", versions=())
    write_identity(tmp_path, "p", extra="version_policy { specific { versions: 7 } }")
    server = await started(make())
    for name in ("m", "p"):
        with pytest.raises(ModelLoadError, match="at least one version must be available"):
            await server.load_model(name)


async def test_name_other_than_the_directory_is_refused_naming_both(make, tmp_path):
    write_identity(tmp_path, "cat", extra='name: "dog"')
    server = await started(make())
    with pytest.raises(ModelLoadError, match="(?s)dog.*cat|cat.*dog"):
        await server.load_model("cat")
    assert "cat" in index(server)[0]


async def test_missing_config_without_auto_complete_is_refused(make, tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    server = await started(make(auto_complete_config=False))
    with pytest.raises(ModelLoadError, match="config.pbtxt is missing"):
        await server.load_model("m")


async def test_unknown_backend_is_named(make, tmp_path):
    model = write_identity(tmp_path, "m")
    text = (model / "config.pbtxt").read_text().replace("identity", "idntity")
    (model / "config.pbtxt").write_text(text)
    server = await started(make())
    with pytest.raises(ModelLoadError, match="idntity"):
        await server.load_model("m")


async def test_config_override_holds_until_the_next_plain_load(make, tmp_path):
    write_identity(tmp_path, "m")
    server = await started(make(load_models=("m",)))
    tensor = {"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}
    override = {
        "backend": "identity",
        "max_batch_size": 2,
        "input": [tensor],
        "output": [{**tensor, "name": "OUTPUT0"}],
    }

    await server.load_model("m", config_override=json.dumps(override))
    assert server.model_config("m").max_batch_size == 2
    await server.load_model("m")
    assert server.model_config("m").max_batch_size == 8

    for wrong in ("{", '{"inputs": []}', "[]", '{"max_batch_size": "x"}'):
        with pytest.raises(ModelLoadError):
            await server.load_model("m", config_override=wrong)
    assert server.is_model_ready("m")


# Serving


async def test_request_is_answered(make, tmp_path):
    write_identity(tmp_path, "m")
    server = await started(make(load_models=("m",)))
    response = await server.infer_async(identity_request("m", value=3.0))
    assert response.outputs[0].array.tolist() == [[3.0] * 4]


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [("nope", -1, NotFoundError), ("m", 7, NotFoundError), ("a", -1, NotFoundError)],
)
async def test_request_for_what_is_not_served_fails(make, tmp_path, name, version, error):
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "m")
    server = await started(make(load_models=("m",)))
    with pytest.raises(error):
        await server.infer_async(identity_request(name, version))
    with pytest.raises(error):
        server.model_metadata(name, version)
    with pytest.raises(InvalidArgumentError):
        server.model_statistics(name, version)


async def test_metadata_and_statistics_of_a_model(make, tmp_path):
    write_identity(tmp_path, "m", versions=(1, 2), extra="version_policy { all {} }")
    server = await started(make(load_models=("m",), server_id="me"))
    await server.infer_async(identity_request("m", 1))

    metadata = server.model_metadata("m")
    assert metadata["versions"] == ["1", "2"]
    assert metadata["platform"] == "identity"
    assert metadata["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 4]}]
    assert server.model_metadata("m", 1)["versions"] == ["1"]
    counts = [(row["version"], row["inference_count"]) for row in server.model_statistics("m")]
    assert counts == [("1", 1), ("2", 0)]
    assert server.model_statistics() == server.model_statistics("m")
    assert server.server_metadata()["name"] == "me"
    assert [model.version for model in server.metrics_models()] == [1, 2]


async def test_accepted_request_survives_an_unload(make, tmp_path):
    write_identity(tmp_path, "m", delay_ms=200)
    server = await started(make(load_models=("m",)))
    running = asyncio.create_task(server.infer_async(identity_request("m")))
    await wait_until(lambda: server.model("m").inflight_count)

    await server.unload_model("m")
    assert index(server) == ["m:1 UNLOADING"]
    with pytest.raises(ServingError):
        await server.infer_async(identity_request("m"))

    assert (await running).outputs
    await server.settled()
    assert index(server) == ["m:1 UNAVAILABLE unloaded"]


async def test_no_request_fails_while_models_are_swapped(make, tmp_path):
    model = write_identity(tmp_path, "m")
    server = await started(make(load_models=("m",)))
    answered = 0
    is_over = False

    async def ask() -> None:
        nonlocal answered
        while not is_over:
            await server.infer_async(identity_request("m"))
            answered += 1

    clients = [asyncio.create_task(ask()) for _ in range(4)]
    for size in range(1, 6):
        (model / "stray").write_text("x" * size)
        await server.load_model("m")
        goal = answered + 1
        await wait_until(lambda: answered >= goal)  # noqa: B023 - awaited in this round
    is_over = True
    await asyncio.gather(*clients)
    assert index(server) == ["m:1 READY"]


async def test_listener_hears_every_change_and_a_broken_one_harms_nothing(make, tmp_path):
    write_identity(tmp_path, "m")
    server = await started(make())
    heard: list[Any] = []

    def broken(entry: object) -> None:
        raise RuntimeError("listener")

    server.add_state_listener(broken)
    server.add_state_listener(heard.append)
    await server.load_model("m")
    await server.unload_model("m")
    await server.settled()

    assert rows(heard) == ["m:1 LOADING", "m:1 READY", "m:1 UNLOADING", "m:1 UNAVAILABLE unloaded"]


async def test_poll_mode_follows_the_disk(make, tmp_path):
    server = await started(make(model_control_mode=ControlMode.POLL, repository_poll_secs=0.02))
    write_identity(tmp_path, "m")
    await wait_until(lambda: index(server) == ["m:1 READY"])

    (tmp_path / "m").rename(tmp_path.parent / "gone")
    await wait_until(lambda: index(server) == [])
    with pytest.raises(UnavailableError, match="polling is enabled"):
        await server.load_model("m")


async def test_stop_finishes_accepted_requests_and_refuses_new_ones(make, tmp_path):
    write_identity(tmp_path, "m", delay_ms=200)
    server = await started(make(load_models=("m",)))
    running = asyncio.create_task(server.infer_async(identity_request("m")))
    await wait_until(lambda: server.model("m").inflight_count)

    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    assert not server.is_ready()
    assert server.is_live
    with pytest.raises(UnavailableError, match="Server is stopping"):
        await server.infer_async(identity_request("m"))

    assert await stopping
    assert (await running).outputs


async def test_stop_gives_up_after_the_exit_timeout(make, tmp_path):
    write_identity(tmp_path, "m", delay_ms=500)
    server = await started(make(load_models=("m",), exit_timeout_secs=0.05))
    running = asyncio.create_task(server.infer_async(identity_request("m")))
    await wait_until(lambda: server.model("m").inflight_count)

    stopping = time.monotonic()
    assert not await server.stop()

    assert time.monotonic() - stopping < 0.4
    with pytest.raises(UnavailableError, match="server is stopping, and the request to model 'm'"):
        await running


async def test_stop_abandons_what_an_unload_still_drains(make, tmp_path):
    write_identity(tmp_path, "m", delay_ms=500)
    server = await started(make(load_models=("m",), exit_timeout_secs=0.05))
    waiting = [asyncio.create_task(server.infer_async(identity_request("m"))) for _ in range(5)]
    await wait_until(lambda: server.model("m").inflight_count == 5)
    await server.unload_model("m")

    assert not await server.stop()

    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(answer) for answer in answers} == {UnavailableError}


async def test_an_unload_that_does_not_end_is_told_in_the_index(make, tmp_path):
    write_identity(tmp_path, "m", delay_ms=700)
    server = await started(make(load_models=("m",), model_drain_timeout_secs=0.05))
    running = asyncio.create_task(server.infer_async(identity_request("m")))
    await wait_until(lambda: server.model("m").inflight_count)

    await server.unload_model("m")
    with pytest.raises(UnavailableError, match="within the drain timeout of 0.05 s"):
        await running
    await server.settled()

    (row,) = server.repository_index()
    assert row.state == "UNAVAILABLE"
    assert row.reason.startswith("unloaded, but the execution of instance 'm_0' did not finish")
    assert server.is_ready()

    await server.load_model("m")
    assert index(server) == ["m:1 READY"]
