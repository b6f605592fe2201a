"""Custom batching: a Python file of the model decides what a batch may hold. Spec SCH-043."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest

from serving.config import batch_strategy
from serving.errors import ModelLoadError
from serving.scheduling.custom_batching import BatchStrategy
from tests.serving.loading import IDENTITY, load, outputs_of
from tests.serving.scheduling.hosts import Batching

SUM_OF_COLUMNS = """
CALLS = []

def batcher_initialize(config):
    CALLS.append("initialize " + config["name"])
    return {"limit": int(config["parameters"]["limit"]["string_value"])}

def batcher_finalize(batcher):
    CALLS.append("finalize")

def batch_initialize(batcher):
    return {"left": batcher["limit"]}

def batch_include_request(request, batch):
    columns = request.inputs["IN"].shape[1]
    if columns > batch["left"]:
        return False
    batch["left"] -= columns
    return True

def batch_finalize(batch):
    batch.clear()
"""
CONFIG = {"name": "m", "parameters": {"limit": {"string_value": "5"}}}
RAGGED = 'input { name: "IN" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }'


def strategy_of(tmp_path, source=SUM_OF_COLUMNS):
    path = tmp_path / "batchstrategy.py"
    path.write_text(source)
    return BatchStrategy.load(path, "m", CONFIG)


def sent(batching, *columns):
    batching.send("busy", columns=1)
    batching.turn()
    for number, width in enumerate(columns):
        batching.send(f"r{number}", columns=width)
    while batching.host.running is not None:
        batching.host.finish()
    return batching.batches()[1:]


def test_a_request_that_the_strategy_does_not_include_begins_the_next_batch(tmp_path):
    """SCH-043."""
    batching = Batching(inputs=RAGGED, strategy=strategy_of(tmp_path))

    assert sent(batching, 2, 3, 1, 4, 9, 1) == [
        "r0 r1: custom",
        "r2 r3: custom",
        "r4: custom",  # larger than the limit by itself: it goes alone, or it would never go
        "r5: queue_empty",
    ]


def test_the_limits_of_the_config_hold_besides_those_of_the_strategy(tmp_path):
    batching = Batching(inputs=RAGGED, max_batch_size=2, strategy=strategy_of(tmp_path))

    assert sent(batching, 1, 1, 1) == ["r0 r1: full", "r2: queue_empty"]


def test_a_batch_that_the_strategy_closes_does_not_wait_for_the_delay(tmp_path):
    batching = Batching(
        "max_queue_delay_microseconds: 1000", inputs=RAGGED, strategy=strategy_of(tmp_path)
    )

    batching.send("a", columns=4)
    batching.send("b", columns=4)
    batching.turn()

    assert batching.batches() == ["a: custom"]


async def test_the_state_of_the_model_is_made_once_and_ends_with_the_scheduler(tmp_path):
    """SCH-043."""
    strategy = strategy_of(tmp_path)
    batching = Batching(inputs=RAGGED, strategy=strategy)

    await batching.batcher.stop()
    await batching.batcher.stop()

    assert strategy._module.CALLS == ["initialize m", "finalize"]


@pytest.mark.parametrize(
    ("function", "batches"),
    [
        ("batch_initialize", ["r0: custom", "r1: custom"]),
        ("batch_include_request", ["r0: custom", "r1: custom"]),
        ("batch_finalize", ["r0 r1: queue_empty"]),
    ],
)
def test_a_strategy_that_fails_costs_the_batch_and_no_request(tmp_path, caplog, function, batches):
    """SCH-043."""
    source = f"{SUM_OF_COLUMNS}\ndef {function}(*arguments):\n    raise SystemExit('oops')\n"
    batching = Batching(inputs=RAGGED, strategy=strategy_of(tmp_path, source))

    with caplog.at_level(logging.ERROR):
        assert sent(batching, 1, 1) == batches

    assert sum(f"{function} failed" in record.message for record in caplog.records) == 1
    assert [answer for _, answer in batching.answers] == ["ok"] * 3


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def batch_initialize(batcher): ...", "lacks batcher_initialize, batcher_finalize, batch"),
        ("def (", "cannot be read as Python"),
        (SUM_OF_COLUMNS + "raise ValueError('bad')", "failed to start: ValueError: bad"),
        (SUM_OF_COLUMNS.replace('"limit"]["', '"none"]["'), "failed to start: KeyError"),
    ],
)
def test_a_strategy_that_cannot_start_fails_the_load(tmp_path, source, words):
    with pytest.raises(ModelLoadError, match="'batchstrategy.py'.*" + words):
        strategy_of(tmp_path, source)


def test_the_strategy_is_searched_in_the_version_then_in_the_model(tmp_path):
    """SCH-043."""
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    assert batch_strategy.find({}, model, 1) is None

    (model / "batchstrategy.py").touch()
    assert batch_strategy.find({}, model, 1) == model / "batchstrategy.py"
    (model / "1" / "batchstrategy.py").touch()
    assert batch_strategy.find({}, model, 1) == model / "1" / "batchstrategy.py"


@pytest.mark.parametrize("name", ["m/other.py", "other.py"])
def test_the_parameter_names_another_file_inside_the_repository(tmp_path, name):
    model = tmp_path / "m"
    model.mkdir()
    (model / "batchstrategy.py").touch()
    (model / "other.py").touch()
    (tmp_path.parent / "outside.py").touch()

    def find(value):
        return batch_strategy.find({batch_strategy.STRATEGY: value}, model, 1)

    assert find(name) == model / "other.py"
    assert find("../outside.py") is None
    assert find("m/library.so") is None


async def test_a_model_is_batched_by_the_strategy_that_lies_beside_it(tmp_path):
    (tmp_path / "batchstrategy.py").write_text(SUM_OF_COLUMNS)
    limit = 'parameters { key: "limit" value { string_value: "5" } }'
    text = f"{IDENTITY} dynamic_batching {{}} {limit}"
    model = await load(text.replace("[-1] }", "[-1] allow_ragged_batch: true }", 1), tmp_path)

    rows = [np.zeros((1, 4), np.float32), np.zeros((1, 2), np.float32)]
    await asyncio.gather(*(outputs_of(model, {"IN": row}) for row in rows))

    assert model.stats.snapshot().close_reasons == {"custom": 1, "queue_empty": 1}
    await model.drain_and_close()
