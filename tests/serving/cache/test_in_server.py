"""The response cache in a whole server: what is counted, and that no answer outlives its model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.errors import InvalidArgumentError
from serving.options import CacheOptions, ControlMode, ServerOptions
from serving.server import ModelServer
from tests.redis_server import RedisServer
from tests.serving.model_files import identity_request, write_ensemble, write_identity
from tests.waiting import wait_until

CACHED = "response_cache { enable: true }\n"
LOCAL = CacheOptions("local", {"size": "1000000"})

Make = Callable[..., ModelServer]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    servers: list[ModelServer] = []

    def make_server(cache: CacheOptions | None = LOCAL) -> ModelServer:
        servers.append(
            ModelServer(
                ServerOptions(
                    (tmp_path,),
                    model_control_mode=ControlMode.EXPLICIT,
                    exit_timeout_secs=5,
                    cache=cache,
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


def counts(server: ModelServer, name: str = "m") -> dict[str, int]:
    (row,) = server.model_statistics(name)
    found: dict[str, Any] = {key: value["count"] for key, value in row["inference_stats"].items()}
    return {**found, "inferences": row["inference_count"], "executions": row["execution_count"]}


async def ask(server: ModelServer, *values: float, name: str = "m") -> None:
    for value in values:
        response = await server.infer_async(identity_request(name, value=value))
        assert response.outputs[0].array.tolist() == [[value] * 4]


async def test_hits_and_misses_are_counted_as_triton_counts_them(make: Make, tmp_path: Path):
    """SCH-125, HTTP-072: success and queue count all, compute stages without the hits."""
    write_identity(tmp_path, "m", extra=CACHED)
    server = await serving(make(), "m")

    await ask(server, 1, 2, 1, 1)

    assert counts(server) == {
        "success": 4,
        "fail": 0,
        "queue": 4,
        "compute_input": 2,
        "compute_infer": 2,
        "compute_output": 2,
        "cache_hit": 2,
        "cache_miss": 2,
        "inferences": 2,
        "executions": 2,
    }
    (row,) = server.model_statistics("m")
    stages = row["inference_stats"]
    assert all(stages[stage]["ns"] > 0 for stage in ("cache_hit", "cache_miss", "success"))


@pytest.mark.parametrize(("extra", "cache"), [("", LOCAL), (CACHED, None)])
async def test_server_and_model_must_both_want_it(
    make: Make, tmp_path: Path, extra: str, cache: CacheOptions | None
):
    """SCH-120."""
    write_identity(tmp_path, "m", extra=extra)
    server = await serving(make(cache), "m")

    await ask(server, 1, 1)

    assert counts(server)["executions"] == 2
    assert counts(server)["cache_hit"] == counts(server)["cache_miss"] == 0
    assert not server.model("m").is_cached


async def test_a_reload_of_changed_files_gives_no_old_answer(make: Make, tmp_path: Path):
    """SCH-121. Real Triton gives them."""
    directory = write_identity(tmp_path, "m", extra=CACHED)
    server = await serving(make(), "m")
    await ask(server, 1, 1)
    (directory / "1" / "weights").write_text("new")

    await server.load_model("m")
    await ask(server, 1)

    assert counts(server)["cache_hit"] == 0
    await server.settled()
    assert server.cache is not None
    assert server.cache.counters.entries == 1, "those of the old model are gone"


async def test_versions_have_answers_of_their_own(make: Make, tmp_path: Path):
    """SCH-121."""
    extra = CACHED + "version_policy { all {} }\n"
    write_identity(tmp_path, "m", versions=(1, 2), extra=extra)
    server = await serving(make(), "m")

    for version in (1, 2, 1, 2):
        await server.infer_async(identity_request("m", version))

    for row in server.model_statistics("m"):
        assert row["execution_count"] == 1
        assert row["inference_stats"]["cache_hit"]["count"] == 1


async def test_unloading_frees_the_memory(make: Make, tmp_path: Path):
    write_identity(tmp_path, "m", extra=CACHED)
    server = await serving(make(), "m")
    await ask(server, 1, 2, 3)
    assert server.cache is not None
    assert server.cache.counters.entries == 3

    await server.unload_model("m")
    await server.settled()

    assert server.cache.counters.entries == 0
    assert server.cache.counters.used_bytes == 0


async def test_models_share_one_budget(make: Make, tmp_path: Path):
    """SCH-122."""
    for name in ("m", "n"):
        write_identity(tmp_path, name, extra=CACHED)
    server = await serving(make(CacheOptions("local", {"size": "1200"})), "m", "n")

    await ask(server, 1, 2)
    await ask(server, 1, name="n")
    await ask(server, 1)

    assert server.cache is not None
    assert server.cache.counters.evictions == 2
    assert counts(server)["cache_hit"] == 0


async def test_an_ensemble_is_cached_as_a_whole(make: Make, tmp_path: Path):
    """SCH-126: a hit asks none of its parts."""
    write_identity(tmp_path, "part")
    write_ensemble(tmp_path, "m", "part", "part", extra=CACHED)
    server = await serving(make(), "m")

    await ask(server, 1, 1, 1)

    assert counts(server)["cache_hit"] == 2
    assert counts(server, "part")["executions"] == 2


async def test_an_ensemble_gives_no_answers_of_parts_that_were_replaced(make: Make, tmp_path: Path):
    """SCH-121."""
    part = write_identity(tmp_path, "part")
    write_ensemble(tmp_path, "m", "part", extra=CACHED)
    server = await serving(make(), "m")
    await ask(server, 1, 1)
    assert counts(server, "part")["executions"] == 1
    (part / "1" / "weights").write_text("new")

    await server.load_model("part")
    await ask(server, 1)

    assert counts(server, "part")["executions"] == 1, "of the new part"


@pytest.mark.parametrize(
    "extra",
    ["sequence_batching {}\n", "model_transaction_policy { decoupled: true }\n"],
)
async def test_sequence_and_decoupled_models_with_a_cache_are_refused(
    make: Make, tmp_path: Path, extra: str
):
    """SCH-124, VAL-14, VAL-15."""
    write_identity(tmp_path, "m", extra=CACHED + extra)
    server = await serving(make())

    with pytest.raises(InvalidArgumentError, match="Response Cache"):
        await server.load_model("m")


async def test_a_cache_that_is_not_there_stops_the_start(make: Make):
    """SCH-120."""
    with pytest.raises(InvalidArgumentError, match="unable to find the response cache 'nope'"):
        await make(CacheOptions("nope", {"a": "b"})).start()


async def test_servers_share_a_redis_and_a_restart_loses_nothing(
    make: Make, tmp_path: Path, redis_server: RedisServer
):
    """SCH-122: the same files have the same answers, wherever they are served."""
    write_identity(tmp_path, "m", extra=CACHED)
    redis = CacheOptions("redis", {"unix_socket": str(redis_server.socket), "timeout_ms": "5000"})
    one = await serving(make(redis), "m")
    await ask(one, 1)

    other = await serving(make(redis), "m")

    async def is_hit() -> bool:
        await ask(other, 1)
        return counts(other)["cache_hit"] > 0

    while not await is_hit():
        pass
    await one.unload_model("m")
    await one.settled()
    before = counts(other)["executions"]
    await ask(other, 1)
    assert counts(other)["executions"] == before


async def test_a_redis_that_dies_costs_no_request(
    make: Make, tmp_path: Path, redis_server: RedisServer
):
    """SCH-122."""
    write_identity(tmp_path, "m", extra=CACHED)
    redis = CacheOptions("redis", {"unix_socket": str(redis_server.socket), "timeout_ms": "5000"})
    server = await serving(make(redis), "m")
    await ask(server, 1)

    redis_server.stop()
    await ask(server, *range(50))

    assert counts(server)["fail"] == 0
    assert counts(server)["executions"] == 51
    assert server.cache is not None
    await wait_until(lambda: server.cache is not None and not server.cache.counters.is_open)
