"""The rate limiter in a whole server: loads that cannot be, updates, and models that take turns."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from serving.errors import BackendError, ModelLoadError
from serving.instance.process import ProcessHost
from serving.options import ControlMode, ServerOptions
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_identity
from tests.waiting import wait_until

Make = Callable[..., ModelServer]


def group(resources: str, count: int = 1, priority: int = 1) -> str:
    return (
        f"instance_group {{ kind: KIND_CPU count: {count} "
        f"rate_limiter {{ {resources} priority: {priority} }} }}\n"
    )


def needs(name: str, count: int, *, is_global: bool = False) -> str:
    scope = " global: true" if is_global else ""
    return f'resources {{ name: "{name}" count: {count}{scope} }}'


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    servers: list[ModelServer] = []

    def make_server(rate_limit: bool = True, **limits: int) -> ModelServer:
        servers.append(
            ModelServer(
                ServerOptions(
                    (tmp_path,),
                    model_control_mode=ControlMode.EXPLICIT,
                    exit_timeout_secs=5,
                    rate_limit=rate_limit,
                    rate_limit_resources={(name, None): count for name, count in limits.items()},
                )
            )
        )
        return servers[-1]

    yield make_server
    for server in servers:
        await server.stop()


async def serving(server: ModelServer, *names: str) -> ModelServer:
    await server.start()
    for name in names:
        await server.load_model(name)
    return server


async def test_a_demand_above_the_pool_fails_the_load(make: Make, tmp_path: Path):
    """SCH-112, VAL-59."""
    write_identity(tmp_path, "m", extra=group(needs("R1", 4)))
    server = await serving(make(r1=3))

    with pytest.raises(ModelLoadError, match="'R1' is limited to 3.*required count is 4"):
        await server.load_model("m")


async def test_one_resource_in_two_scopes_fails_the_load(make: Make, tmp_path: Path):
    """SCH-111, VAL-58."""
    write_identity(tmp_path, "a", extra=group(needs("r", 1)))
    write_identity(tmp_path, "b", extra=group(needs("r", 1, is_global=True)))
    server = await serving(make(), "a")

    with pytest.raises(ModelLoadError, match="both global and device-specific.*in 'a' one way"):
        await server.load_model("b")

    await server.unload_model("a")
    await server.settled()
    await server.load_model("b")


async def test_off_means_that_nothing_is_limited(make: Make, tmp_path: Path):
    """SCH-110."""
    write_identity(tmp_path, "m", extra=group(needs("r", 4)))
    server = await serving(make(rate_limit=False, r=3), "m")

    await server.infer_async(identity_request("m"))

    assert server.model("m").turns is None


async def test_an_update_raises_the_pool_but_not_above_what_is_given(make: Make, tmp_path: Path):
    """REP-095."""
    write_identity(tmp_path, "m", extra=group(needs("r", 1)))
    write_identity(tmp_path, "n", extra=group(needs("s", 1)))
    server = await serving(make(s=2), "m", "n")
    assert server.limiter is not None

    write_identity(tmp_path, "m", extra=group(needs("r", 5)))
    await server.load_model("m")
    await server.settled()
    assert [(item.name, item.capacity) for item in server.limiter.resources()] == [
        ("r", 5),
        ("s", 2),
    ]

    write_identity(tmp_path, "n", extra=group(needs("s", 3)))
    with pytest.raises(ModelLoadError, match="limited to 2"):
        await server.load_model("n")
    await server.infer_async(identity_request("n"))


@pytest.mark.parametrize("batching", ["", "dynamic_batching {}\n"])
async def test_models_that_share_a_resource_never_run_at_once(
    make: Make, tmp_path: Path, batching: str
):
    """SCH-111 over whole models; and nobody is forgotten."""
    for name in ("a", "b"):
        write_identity(tmp_path, name, extra=batching + group(needs("r", 1), count=2), delay_ms=2)
    server = await serving(make(), "a", "b")
    limiter = server.limiter
    assert limiter is not None
    requests = [
        asyncio.ensure_future(server.infer_async(identity_request(name)))
        for _ in range(20)
        for name in ("a", "b")
    ]
    turns = server.model("b").turns
    assert turns is not None
    await wait_until(lambda: turns.waiting_count)
    assert "waits for" in turns.reason
    told = server.model_statistics("b")[0]["rate_limit"]
    assert told["waiting"] > 0
    assert told["reason"] == turns.reason
    while not all(request.done() for request in requests):
        assert all(item.used <= 1 for item in limiter.resources())
        await asyncio.sleep(0)

    assert all(request.exception() is None for request in requests)
    assert turns.waits.count > 0
    assert turns.waits.total_ns > 0
    assert [item.used for item in limiter.resources()] == [0]


async def test_an_unloaded_model_leaves_no_demand(make: Make, tmp_path: Path):
    write_identity(tmp_path, "m", extra=group(needs("r", 1)))
    server = await serving(make(), "m")
    await server.infer_async(identity_request("m"))

    await server.unload_model("m")
    await server.settled()

    assert server.limiter is not None
    assert server.limiter.resources() == []


async def test_a_load_that_fails_leaves_no_demand(make: Make, tmp_path: Path):
    warmup = 'model_warmup { name: "w" batch_size: 1 inputs { key: "NOPE" value { '
    warmup += "data_type: TYPE_FP32 dims: [4] zero_data: true } } }\n"
    write_identity(tmp_path, "m", extra=group(needs("r", 1)) + warmup)
    server = await serving(make())

    with pytest.raises(ModelLoadError):
        await server.load_model("m")
    await server.settled()

    assert server.limiter is not None
    assert server.limiter.resources() == []


async def test_a_process_that_dies_gives_its_resources_back(make: Make, tmp_path: Path):
    """SCH-111: nobody waits for the dead."""
    isolated = 'parameters { key: "instance_isolation" value { string_value: "process" } }\n'
    write_identity(tmp_path, "a", extra=group(needs("r", 1)) + isolated, delay_ms=60_000)
    write_identity(tmp_path, "b", extra=group(needs("r", 1)))
    server = await serving(make(), "a", "b")
    assert server.limiter is not None
    doomed = asyncio.ensure_future(server.infer_async(identity_request("a")))
    waiting = asyncio.ensure_future(server.infer_async(identity_request("b")))
    turns = server.model("b").turns
    assert turns is not None
    await wait_until(lambda: turns.waiting_count)
    (host,) = server.model("a").hosts
    assert isinstance(host, ProcessHost)
    assert host.pid is not None

    os.kill(host.pid, signal.SIGKILL)

    await asyncio.wait_for(waiting, 10)
    with pytest.raises(BackendError, match="SIGKILL"):
        await doomed
