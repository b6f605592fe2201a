"""Sequences through a whole server: Python models in child processes, identities in threads.

Spec SCH-050..061, 069, REP-072, REP-083, REP-093.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import InvalidArgumentError, QueueRejectedError, UnavailableError
from serving.server import ModelServer
from tests.serving.backends.python.serving_models import (
    ask_server,
    infer_request,
    served,
)
from tests.serving.scheduling.sequence.accumulate import (
    ACCUMULATE,
    CONTROLS,
    DIRECT,
    OLDEST,
    accumulate,
)
from tests.waiting import wait_until


async def add(server: ModelServer, sequence: str, value: float, flags: str = "") -> float:
    """Send one number. `flags`: "s" starts, "e" ends. Returns the sum; raises ServingError."""
    has_batch_axis = server.model_config("sum").max_batch_size > 0 if server.is_ready() else True
    array = np.full((1, 1) if has_batch_axis else (1,), value, np.float32)
    fields: dict[str, Any] = {
        "correlation_id": sequence,
        "sequence_start": "s" in flags,
        "sequence_end": "e" in flags,
    }
    return float((await ask_server(server, "sum", array, **fields)).item())


@pytest.mark.parametrize("strategy", [DIRECT, OLDEST], ids=["direct", "oldest"])
@pytest.mark.parametrize("size", [0, 4])
async def test_every_sequence_gets_its_own_running_sum(tmp_path: Path, strategy, size):
    """SCH-054, SCH-056, SCH-057: 60 sequences at a time over two instances."""
    random.seed(7)

    async def run(number: int) -> None:
        values = [random.randrange(100) for _ in range(random.randrange(1, 8))]
        sums = list(itertools.accumulate(values))
        for index, value in enumerate(values):
            flags = ("s" if not index else "") + ("e" if index == len(values) - 1 else "")
            assert await add(server, f"sequence {number}", value, flags) == sums[index]

    models = {"sum": accumulate(strategy, size=size, instances=2)}
    async with served(tmp_path, models) as server:
        await asyncio.gather(*(run(number) for number in range(60)))

        usage = server.model("sum").slot_usage
        assert (usage.active, usage.backlog) == (0, 0)
        assert server.model("sum").inflight_count == 0


@pytest.mark.parametrize("strategy", [DIRECT, OLDEST], ids=["direct", "oldest"])
async def test_requests_sent_without_waiting_for_answers_keep_their_order(tmp_path, strategy):
    """SCH-054, SCH-056."""
    async with served(tmp_path, {"sum": accumulate(strategy)}) as server:
        sends = [
            add(server, name, 1, "s" if not index else "e" if index == 19 else "")
            for index in range(20)
            for name in "abcdef"
        ]
        answers = await asyncio.gather(*sends)

    for column in range(6):
        assert answers[column::6] == [float(number) for number in range(1, 21)]


async def test_fillers_are_part_of_the_batch_size_but_no_inferences(tmp_path):
    """SCH-054, SCH-044."""
    async with served(tmp_path, {"sum": accumulate()}) as server:
        for name in "abc":
            await add(server, name, 1, "s")
        await add(server, "c", 1, "e")
        [row] = server.model_statistics("sum")
        for name in "ab":
            await add(server, name, 1, "e")

    assert (row["inference_count"], row["execution_count"]) == (4, 4)
    sizes = {item["batch_size"]: item["compute_infer"]["count"] for item in row["batch_stats"]}
    assert sizes == {1: 1, 2: 1, 3: 2}


async def test_a_refused_request_is_no_failure_of_the_model(tmp_path):
    """SCH-051."""
    async with served(tmp_path, {"sum": accumulate()}) as server:
        with pytest.raises(InvalidArgumentError, match="must specify the START flag"):
            await add(server, "a", 1)

        snapshot = server.model("sum").stats.snapshot()

    assert (snapshot.fail.count, snapshot.invalid_count) == (0, 1)


async def test_an_idle_sequence_is_dropped(tmp_path):
    """SCH-058."""
    async with served(tmp_path, {"sum": accumulate(idle_s=0.05)}) as server:
        await add(server, "a", 1, "s")
        await wait_until(lambda: not server.model("sum").slot_usage.active)

        with pytest.raises(InvalidArgumentError, match="max_sequence_idle_microseconds"):
            await add(server, "a", 1)


async def test_a_stopping_server_lets_sequences_come_to_their_end(tmp_path):
    """SCH-069, REP-072: only new ones are refused."""
    async with served(tmp_path, {"sum": accumulate()}) as server:
        await add(server, "a", 1, "s")
        stopping = asyncio.ensure_future(server.stop())
        await wait_until(lambda: not server.is_ready())

        with pytest.raises(UnavailableError, match="Server is stopping"):
            await add(server, "b", 1, "s")
        assert await add(server, "a", 2) == 3
        assert not stopping.done()
        assert await add(server, "a", 3, "e") == 6

        assert await stopping


async def test_a_reload_takes_no_sequence_away(tmp_path):
    """REP-083: it goes on with the model that knows it, new ones begin on the new one."""
    async with served(tmp_path, {"sum": accumulate()}) as server:
        await add(server, "a", 1, "s")
        old = server.model("sum")
        (tmp_path / "sum" / "1" / "model.py").write_text(ACCUMULATE.replace("total =", "total  ="))
        await server.load_model("sum")

        assert server.model("sum") is not old
        assert await add(server, "a", 2) == 3
        assert await add(server, "b", 5, "s") == 5
        assert server.model("sum").serves_sequence("b")
        assert await add(server, "b", 5, "e") == 10
        assert await add(server, "a", 3, "e") == 6
        with pytest.raises(InvalidArgumentError, match="START"):
            await add(server, "a", 3)


async def test_an_unloaded_model_finishes_its_sequences(tmp_path):
    """REP-083."""
    async with served(tmp_path, {"sum": accumulate()}) as server:
        await add(server, "a", 1, "s")
        await server.unload_model("sum")

        array = np.ones((1, 1), np.float32)
        request = infer_request("sum", array, correlation_id="a", sequence_end=True)
        assert server.receiver("sum").serves_sequence("a")
        response = await server.infer_async(request)
        await server.settled()

    assert response.outputs[0].array.item() == 2


async def test_fewer_instances_wait_for_the_sequences_of_those_that_go(tmp_path):
    """REP-093."""
    async with served(tmp_path, {"sum": accumulate(size=0, instances=2)}) as server:
        model = server.model("sum")
        assert [await add(server, name, 1, "s") for name in "ab"] == [1, 1]
        config = tmp_path / "sum" / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 2", "count: 1"))

        update = asyncio.ensure_future(server.load_model("sum"))
        await wait_until(lambda: model.instance_count == 1, 20)
        waiting = asyncio.ensure_future(add(server, "c", 7, "s"))
        assert [await add(server, name, 1) for name in "ab"] == [2, 2]
        assert not update.done()
        assert [await add(server, name, 1, "e") for name in "ab"] == [3, 3]

        await update
        assert await waiting == 7
        assert server.model("sum") is model, "changed in place"
        assert await add(server, "c", 1, "e") == 8


async def test_fewer_instances_are_those_without_sequences_where_there_are_some(tmp_path):
    """REP-093: then nobody has to wait."""
    async with served(tmp_path, {"sum": accumulate(size=0, instances=2)}) as server:
        assert [await add(server, name, 1, "s") for name in "ab"] == [1, 1]
        await add(server, "a", 1, "e")
        config = tmp_path / "sum" / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 2", "count: 1"))

        await server.load_model("sum")

        assert server.model("sum").instance_count == 1
        assert await add(server, "b", 1, "e") == 2


async def test_sequences_of_a_process_that_dies_are_told_so(tmp_path):
    """SCH-054: their sums died with it."""
    kill = ACCUMULATE.replace("answers = []", "import os\n        answers = []\n", 1).replace(
        'if at(request, "READY"):',
        'if at(request, "IN") == 666: os.kill(os.getpid(), 9)\n            '
        'if at(request, "READY"):',
        1,
    )
    assert os.name == "posix"
    assert signal.SIGKILL == 9
    async with served(tmp_path, {"sum": (kill, accumulate()[1])}) as server:
        await add(server, "a", 1, "s")
        await add(server, "b", 1, "s")
        with pytest.raises(Exception, match=r"died|ended|exit|killed|gone"):
            await add(server, "b", 666)
        await wait_until(lambda: server.model("sum").is_ready, 20)

        with pytest.raises(
            InvalidArgumentError, match=r"START flag .* its instance 'sum_0_0' ended"
        ):
            await add(server, "a", 1)
        assert await add(server, "a", 4, "se") == 4


async def test_a_timeout_in_the_backlog_is_unavailable(tmp_path):
    """SCH-059."""
    async with served(tmp_path, {"sum": accumulate(size=0)}) as server:
        await add(server, "a", 1, "s")
        request = infer_request("sum", correlation_id="b", sequence_start=True, timeout_us=1000)

        with pytest.raises(QueueRejectedError, match="timeout of the corresponding sequence"):
            await server.infer_async(request)
        await add(server, "a", 1, "e")


async def test_the_hooks_of_the_environment_hold_a_model_back(tmp_path, monkeypatch):
    """SCH-070."""
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "2")
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "1")
    async with served(tmp_path, {"sum": accumulate(size=0, instances=2)}) as server:
        early = [asyncio.ensure_future(add(server, name, 1, "se")) for name in "ab"]
        model = server.model("sum")
        await wait_until(lambda: model.slot_usage.active == 2)
        assert model.queued_count == 2

        late = await add(server, "c", 1, "se")

        assert [*await asyncio.gather(*early), late] == [1, 1, 1]


async def test_an_instance_in_a_thread_sees_the_same_rows(tmp_path):
    """SCH-054: the identity backend runs in threads of the server."""
    model = tmp_path / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'backend: "identity" max_batch_size: 4 '
        'input { name: "IN" data_type: TYPE_FP32 dims: [-1] } '
        'output { name: "OUT" data_type: TYPE_FP32 dims: [-1] } '
        f"sequence_batching {{ {DIRECT} {CONTROLS} }}"
    )

    async def run(name: str) -> list[float]:
        values = []
        for index in range(5):
            array = np.full((1, 2), index, np.float32)
            flags = {"sequence_start": index == 0, "sequence_end": index == 4}
            values.append(await ask_server(server, "echo", array, correlation_id=name, **flags))
        return [array[0, 0] for array in values]

    async with served(tmp_path, {}) as server:
        answers = await asyncio.gather(*(run(f"s{number}") for number in range(20)))

    assert answers == [[0, 1, 2, 3, 4]] * 20
