"""Warm-up samples run before a model is READY. Spec SCH-130..134."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from serving import warmup
from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.errors import ModelLoadError, UnavailableError
from serving.instance.base import Batch
from serving.model import Model
from serving.options import ServerOptions
from serving.request_checks import RequestChecks
from serving.server import ModelServer
from serving.services import ModelServices
from tests.serving.instance.python_models import CONFIG, context_for
from tests.serving.loading import IDENTITY, context_of, load
from tests.serving.scheduling.hosts import ManualHost


def with_sample(sample: str, config: str = IDENTITY) -> str:
    return f'{config} model_warmup {{ name: "first" {sample} }}'


def value(data: str, *, datatype: str = "FP32", name: str = "IN", dims: str = "[4]") -> str:
    return f'inputs {{ key: "{name}" value {{ data_type: TYPE_{datatype} dims: {dims} {data} }} }}'


def prepared(sample: str, directory, config: str = IDENTITY) -> np.ndarray:
    context = context_of(with_sample(sample, config), directory)
    return next(iter(warmup.prepare(context)[0].arrays.values()))


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BF16", "INT8", "UINT64", "BOOL"])
def test_random_and_zero_samples_have_the_type_and_shape_asked_for(datatype, tmp_path):
    random = prepared("batch_size: 1 " + value("random_data: true", datatype=datatype), tmp_path)
    zero = prepared("batch_size: 1 " + value("zero_data: true", datatype=datatype), tmp_path)

    assert random.shape == zero.shape == (4,)
    assert random.dtype == zero.dtype
    assert not zero.any()


def test_text_samples_are_empty_strings(tmp_path):
    """SCH-132."""
    array = prepared("batch_size: 1 " + value("random_data: true", datatype="STRING"), tmp_path)

    assert array.tolist() == [b""] * 4


def test_a_file_holds_the_raw_bytes_of_one_row(tmp_path):
    """SCH-132."""
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "raw").write_bytes(np.arange(4, dtype=np.float32).tobytes())

    array = prepared("batch_size: 1 " + value('input_data_file: "raw"'), tmp_path)

    assert array.tolist() == [0, 1, 2, 3]


async def test_samples_run_on_every_instance_and_are_not_counted(tmp_path):
    """SCH-130."""
    text = with_sample(
        "batch_size: 3 count: 2 " + value("random_data: true"),
        IDENTITY + "instance_group { count: 2 kind: KIND_CPU }",
    )

    model = await load(text, tmp_path)

    assert model.is_ready
    snapshot = model.stats.snapshot()
    assert snapshot.execution_count == snapshot.success.count == 0
    await model.drain_and_close()


async def test_a_sample_with_batch_size_zero_is_skipped(tmp_path):
    """SCH-131."""
    sample = "batch_size: 0 " + value('input_data_file: "missing"')

    model = await load(with_sample(sample), tmp_path)

    await model.drain_and_close()


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (value('input_data_file: "missing"'), "input 'IN'"),
        (value('input_data_file: "../config.pbtxt"'), "leaves the folder warmup/"),
        (value('input_data_file: "short"'), "holds 3 bytes, but dims [4] of TYPE_FP32 need 16"),
        (value("zero_data: true", dims="[-1]"), "dims [-1] must all be given"),
        (value("zero_data: true", datatype="INT8"), "data-type is 'INT8'"),
        (value("zero_data: true", name="NOPE"), "unexpected inference input 'NOPE'"),
    ],
)
async def test_a_bad_sample_fails_the_load_and_is_named(tmp_path, sample, text):
    """SCH-134."""
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "short").write_bytes(b"abc")

    with pytest.raises(ModelLoadError) as caught:
        await load(with_sample("batch_size: 1 " + sample), tmp_path)

    assert "failed to run warmup sample 'first': " in caught.value.message
    assert text in caught.value.message


async def test_a_batched_sample_of_a_model_without_batching_is_refused(tmp_path):
    config = IDENTITY.replace("max_batch_size: 8", "max_batch_size: 0")

    with pytest.raises(ModelLoadError, match="batch_size is 2, but the model has max_batch_size 0"):
        await load(with_sample("batch_size: 2 " + value("zero_data: true"), config), tmp_path)


class Recorder(ManualHost):
    """An instance that answers at once."""

    def execute(self, batch: Batch, done) -> None:
        super().execute(batch, done)
        self.finish()


async def run(sample: str, directory: Path = Path("/none")) -> list[Batch]:
    """What an instance executes."""
    context = context_of(with_sample(sample), directory)
    host = Recorder()
    await warmup.run(host, warmup.prepare(context), context, RequestChecks(context.spec))
    return host.executed


async def test_a_batch_is_as_many_requests_of_one_row():
    """SCH-131, as the real Triton makes it."""
    batches = await run("batch_size: 3 " + value("random_data: true"))

    rows = [request.inputs["IN"].array for request in batches[0].requests]
    assert [row.shape for row in rows] == [(1, 4)] * 3
    assert all((row == rows[0]).all() for row in rows)
    assert len(batches) == 1


@pytest.mark.parametrize(("count", "runs"), [(0, 1), (1, 1), (3, 3)])
async def test_a_sample_runs_count_times_and_at_least_once(count, runs):
    """SCH-131."""
    assert len(await run(f"batch_size: 1 count: {count} " + value("zero_data: true"))) == runs


async def test_several_samples_run_in_the_order_of_the_config():
    """SCH-130."""
    first = "batch_size: 2 " + value("zero_data: true")
    second = "batch_size: 1 " + value("zero_data: true", dims="[7]")

    batches = await run(f'{first} }} model_warmup {{ name: "second" {second}')

    assert [batch.requests[0].id for batch in batches] == ["warm-up first 0", "warm-up second 0"]


def test_elements_of_a_text_file_have_their_lengths_in_front(tmp_path):
    """SCH-132."""
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "raw").write_bytes(b"\2\0\0\0ab\0\0\0\0")

    sample = "batch_size: 1 " + value('input_data_file: "raw"', datatype="STRING", dims="[2]")

    assert prepared(sample, tmp_path).tolist() == [b"ab", b""]


async def test_a_sample_that_the_model_fails_on_fails_the_load_with_the_models_words(tmp_path):
    """SCH-134."""
    model = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("no such luck")
"""

    with pytest.raises(ModelLoadError, match="failed to run warmup sample 'first': .*such luck"):
        await load_python(context_for(tmp_path, model, PYTHON))


PYTHON = with_sample("batch_size: 1 " + value("zero_data: true"), CONFIG)


async def load_python(context, **services) -> Model:
    clock = LoopClock(asyncio.get_running_loop())
    backend = BackendRegistry().get("python")
    return await Model.load(context, backend, ModelServices(clock, **services))


HANGING = """
import time

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(60)
"""


async def test_a_warm_up_that_hangs_ends_at_its_time_limit_and_leaves_no_process(tmp_path):
    context = context_for(tmp_path, HANGING, PYTHON)

    with pytest.raises(UnavailableError, match="warm-up: .* did not end within 0.2 s"):
        await load_python(context, warmup_timeout_s=0.2)


async def test_a_warm_up_in_a_thread_ends_at_its_time_limit(tmp_path):
    slow = IDENTITY + 'parameters { key: "execute_delay_ms" value { string_value: "400" } }'
    text = with_sample("batch_size: 1 " + value("zero_data: true"), slow)

    with pytest.raises(UnavailableError, match=r"did not end within 0\.05 s.*warmup-timeout-secs"):
        await load(text, tmp_path, warmup_timeout_s=0.05)


async def test_the_index_tells_that_a_version_warms_up(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    config = IDENTITY.replace('"identity" b', '"m" b')
    sample = "batch_size: 1 " + value("zero_data: true")
    (tmp_path / "m" / "config.pbtxt").write_text(with_sample(sample, config))
    server = ModelServer(ServerOptions((tmp_path,)))
    heard = []
    server.add_state_listener(lambda entry: heard.append((entry.state, entry.reason)))

    await server.start()

    assert heard == [("LOADING", ""), ("LOADING", "warming up"), ("READY", "")]
    await server.stop()


async def test_passive_instances_warm_up_too(tmp_path):
    text = with_sample(
        "batch_size: 1 " + value("zero_data: true", datatype="INT8"),
        IDENTITY + "instance_group [{ kind: KIND_CPU passive: true }]",
    )

    with pytest.raises(ModelLoadError, match="failed to run warmup sample"):
        await load(text, tmp_path)
