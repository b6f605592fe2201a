"""Warm-up samples run before a model is READY. Spec SCH-130..134."""

from __future__ import annotations

import numpy as np
import pytest

from serving import warmup
from serving.errors import ModelLoadError
from tests.serving.loading import IDENTITY, context_of, load


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
    array = prepared("batch_size: 1 " + value("random_data: true", datatype="STRING"), tmp_path)

    assert array.tolist() == [b""] * 4


def test_a_file_holds_the_raw_bytes_of_one_row(tmp_path):
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "raw").write_bytes(np.arange(4, dtype=np.float32).tobytes())

    array = prepared("batch_size: 1 " + value('input_data_file: "raw"'), tmp_path)

    assert array.tolist() == [0, 1, 2, 3]


async def test_samples_run_on_every_instance_and_are_not_counted(tmp_path):
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
