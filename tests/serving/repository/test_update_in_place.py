"""Updates in place (REP-090..096, HTTP-074): instances change, the model goes on."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest

from serving.errors import ModelLoadError
from serving.instance.process import ProcessHost
from serving.options import ControlMode
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_identity
from tests.waiting import wait_until

PROCESS = 'parameters { key: "instance_isolation" value { string_value: "process" } }\n'


def group(count: int, name: str = "", kind: str = "KIND_CPU", more: str = "") -> str:
    named = f'name: "{name}" ' if name else ""
    return f"instance_group {{ {named}count: {count} kind: {kind} {more} }}\n"


async def serving(serve, root: Path, *groups: str, **options) -> ModelServer:
    write_identity(root, "m", extra="".join(groups), **options)
    server = await serve()
    await server.load_model("m")
    return server


async def load_with(server: ModelServer, root: Path, *groups: str, **options) -> None:
    write_identity(root, "m", extra="".join(groups), **options)
    await server.load_model("m")


def hosts(server: ModelServer) -> list:
    pool = server.model("m")._pool
    return [*pool.hosts, *pool.passive]


def instance_threads() -> list[str]:
    """Those of the model here, as it names them: group and number."""
    names = (item.name for item in threading.enumerate())
    return sorted(name for name in names if re.fullmatch(r"m_\d+_\d+", name))


async def test_rep_090_only_the_instance_group_differs_so_the_model_stays(serve, tmp_path):
    server = await serving(serve, tmp_path, group(1))
    model = server.model("m")
    await server.infer_async(identity_request("m"))

    await load_with(server, tmp_path, group(3))

    assert server.model("m") is model
    assert server.model_config("m").instance_group[0].count == 3
    assert server.repository_index()[0].instances == 3
    assert instance_threads() == ["m_0_0", "m_0_1", "m_0_2"]


async def test_http_074_statistics_survive_an_update_and_restart_with_a_reload(serve, tmp_path):
    server = await serving(serve, tmp_path, group(1))
    await server.infer_async(identity_request("m"))

    await load_with(server, tmp_path, group(2))
    assert server.model_statistics("m")[0]["inference_count"] == 1

    await load_with(server, tmp_path, group(2), "dynamic_batching { }\n")
    assert server.model_statistics("m")[0]["inference_count"] == 0


@pytest.mark.parametrize("isolation", ["", PROCESS], ids=["threads", "processes"])
async def test_rep_091_matching_instances_run_on_and_only_the_difference_changes(
    serve, tmp_path, isolation
):
    server = await serving(serve, tmp_path, group(2), isolation)
    first = hosts(server)

    await load_with(server, tmp_path, group(3), isolation)
    assert hosts(server)[:2] == first
    assert len(hosts(server)) == 3

    await load_with(server, tmp_path, group(1, "another-name"), isolation)
    assert len(hosts(server)) == 1
    assert hosts(server)[0] in first
    assert (await server.infer_async(identity_request("m"))).error is None


async def test_rep_091_surplus_processes_are_gone_when_the_load_returns(serve, tmp_path):
    server = await serving(serve, tmp_path, group(2), PROCESS)
    before = hosts(server)
    assert all(isinstance(host, ProcessHost) and host.pid for host in before)

    await load_with(server, tmp_path, group(1), PROCESS)

    gone = [host for host in before if host not in hosts(server)]
    assert [host.pid for host in gone] == [None]


async def test_rep_091_signature_is_the_group_without_name_and_count(serve, tmp_path):
    server = await serving(serve, tmp_path, group(2, "a"))
    first = hosts(server)
    await load_with(server, tmp_path, group(1, "b"), group(1, "c"))
    assert hosts(server) == first

    await load_with(server, tmp_path, group(2, "a", more="passive: true"), group(1))
    assert len(set(hosts(server)) - set(first)) == 2
    assert len(server.model("m")._pool.hosts) == 1


async def test_rep_091_new_instances_get_names_of_their_own(serve, tmp_path):
    server = await serving(serve, tmp_path, group(2, "a"))
    await load_with(server, tmp_path, group(1, "b"), group(3, "a"))

    names = [host.name for host in hosts(server)]
    assert len(set(names)) == 4


async def test_rep_092_requests_go_on_during_an_update(serve, tmp_path):
    server = await serving(serve, tmp_path, group(2), delay_ms=1)
    served = 0
    is_over = asyncio.Event()

    async def traffic() -> None:
        nonlocal served
        while not is_over.is_set():
            await server.infer_async(identity_request("m"))
            served += 1

    clients = [asyncio.create_task(traffic()) for _ in range(4)]
    for count in (3, 1, 4, 2):
        before = served
        await load_with(server, tmp_path, group(count), delay_ms=1)
        await wait_until(lambda before=before: served > before + 5)
    is_over.set()
    await asyncio.gather(*clients)

    assert server.model_statistics("m")[0]["inference_count"] == served


async def test_rep_092_update_waits_for_the_batch_of_the_instance_that_goes(serve, tmp_path):
    server = await serving(serve, tmp_path, group(2), delay_ms=150)
    running = [asyncio.create_task(server.infer_async(identity_request("m"))) for _ in range(2)]
    await wait_until(lambda: server.model("m")._pool.busy_count == 2)

    await load_with(server, tmp_path, group(1), delay_ms=150)

    assert server.model("m").instance_count == 1
    assert any(task.done() for task in running)
    assert [task.error for task in await asyncio.gather(*running)] == [None, None]


async def test_rep_092_idle_instances_go_first(serve, tmp_path):
    server = await serving(serve, tmp_path, group(3), delay_ms=200)
    request = asyncio.create_task(server.infer_async(identity_request("m")))
    pool = server.model("m")._pool
    await wait_until(lambda: pool.busy_count == 1)
    busy = [host for host in pool.hosts if pool.is_busy(host)]

    await load_with(server, tmp_path, group(1), delay_ms=200)

    assert pool.hosts == busy
    assert not request.done()
    await request


@pytest.mark.parametrize("bad", [group(1, kind="KIND_GPU"), group(1, more="gpus: [7]")])
async def test_rep_094_bad_group_is_refused_and_the_old_instances_stay(
    serve, tmp_path, monkeypatch, bad
):
    server = await serving(serve, tmp_path, group(2))
    before = hosts(server)

    with pytest.raises(ModelLoadError, match="load failed for model 'm'"):
        await load_with(server, tmp_path, bad)

    assert hosts(server) == before
    assert server.model_config("m").instance_group[0].count == 2
    assert server.is_ready()
    assert (await server.infer_async(identity_request("m"))).error is None


async def test_rep_094_instance_that_does_not_start_takes_the_new_ones_back(
    serve, tmp_path, monkeypatch
):
    server = await serving(serve, tmp_path, group(1))
    loaded = server.model("m")._instances._loaded
    create, made = loaded.create_instance, []

    def create_one(placement):
        if made:
            raise RuntimeError("no memory for another one")
        made.append(create(placement))
        return made[0]

    monkeypatch.setattr(loaded, "create_instance", create_one)
    with pytest.raises(ModelLoadError, match="no memory for another one"):
        await load_with(server, tmp_path, group(3))

    await wait_until(lambda: instance_threads() == ["m_0_0"])
    assert server.model("m").instance_count == 1
    assert server.repository_index()[0].state == "READY"


async def test_rep_096_stray_file_in_the_model_directory_forces_a_full_reload(serve, tmp_path):
    server = await serving(serve, tmp_path, group(1))
    model = server.model("m")

    (tmp_path / "m" / ".config.pbtxt.swp").write_text("an editor was here")
    await load_with(server, tmp_path, group(2))

    assert server.model("m") is not model


async def test_rep_090_other_field_or_file_means_a_full_reload(serve, tmp_path):
    server = await serving(serve, tmp_path, group(1))
    model = server.model("m")
    await load_with(server, tmp_path, group(2), "dynamic_batching { }\n")
    assert server.model("m") is not model

    model = server.model("m")
    (tmp_path / "m" / "1" / "weights.bin").write_bytes(b"1")
    await load_with(server, tmp_path, group(1), "dynamic_batching { }\n")
    assert server.model("m") is not model


async def test_rep_044_change_of_the_version_policy_keeps_versions_that_stay(serve, tmp_path):
    versions = (1, 2, 3)
    policy = "version_policy { all { } }\n"
    server = await serving(serve, tmp_path, policy, versions=versions)
    third = server.model("m", 3)

    await load_with(
        server, tmp_path, "version_policy { latest { num_versions: 2 } }\n", versions=versions
    )
    await server.settled()

    assert server.ready_versions("m") == [2, 3]
    assert server.model("m", 3) is third
    assert third.config.version_policy.latest.num_versions == 2


async def test_rep_090_override_that_only_changes_instances_updates_in_place(serve, tmp_path):
    server = await serving(serve, tmp_path, group(1))
    model = server.model("m")
    override = {
        "backend": "identity",
        "max_batch_size": 8,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
    }

    await server.load_model("m", config_override=json.dumps(override))
    assert server.model("m") is model
    assert model.instance_count == 2

    await server.load_model("m", config_override=json.dumps(override))
    assert server.model("m") is model

    await server.load_model("m")
    assert server.model("m") is model
    assert model.instance_count == 1


async def test_rep_090_poll_updates_in_place_too(serve, tmp_path):
    write_identity(tmp_path, "m", extra=group(1))
    server = await serve(model_control_mode=ControlMode.POLL, repository_poll_secs=0.05)
    model = server.model("m")

    write_identity(tmp_path, "m", extra=group(2))
    await wait_until(lambda: model.instance_count == 2)

    assert server.model("m") is model
