"""TorchScript modules, served: data types, text, batches, shapes, memory, and files that fail."""

from __future__ import annotations

import asyncio

import ml_dtypes
import numpy as np
import pytest
import torch

from serving.datatypes import BY_NAME
from serving.errors import ErrorCode, ServingError
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import config, failure, io, refused, row, served
from tests.serving.loading import load, outputs_of

SHOUT = (
    'name: "m" backend: "pytorch" max_batch_size: 8 dynamic_batching {}\n'
    + io("input", "words", datatype="STRING", dims="1")
    + io("output", "LOUD__0", datatype="STRING", dims="1")
    + 'output { name: "LENGTH__1" data_type: TYPE_INT64 dims: [1] reshape { } }\n'
)


async def test_text_is_a_list_of_str(tmp_path):
    """PT-08: one string for each row, batched like any tensor."""
    model = await served(tmp_path, modules.Shout(), SHOUT)
    sent = [np.array(words, object).reshape(-1, 1) for words in ([b"a"], ["bé".encode(), b"ccc"])]

    answers = await asyncio.gather(*(outputs_of(model, {"words": item}) for item in sent))

    assert answers[0]["LOUD__0"].tolist() == [[b"A"]]
    assert answers[1]["LOUD__0"].tolist() == [["Bé".encode()], [b"CCC"]]
    assert answers[1]["LENGTH__1"].tolist() == [[3], [3]]  # TorchScript counts bytes
    await model.drain_and_close()


async def test_text_has_a_row_for_each_of_the_batch_also_beside_ragged_inputs(tmp_path):
    """PT-08: a list of texts is cut by the rows of the batch, not by those of an input."""
    ragged = config(
        [],
        [],
        'input { name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }'
        'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_FP32 '
        'source_input: "x" }\n' + io("output", "SAID__0", datatype="STRING", dims="1"),
    )
    model = await served(tmp_path, modules.Told(), ragged + "dynamic_batching {}\n")
    sent = [np.zeros((1, count), np.float32) for count in (2, 5)]

    answers = await asyncio.gather(*(outputs_of(model, {"x": item}) for item in sent))

    assert [answer["SAID__0"].tolist() for answer in answers] == [[[b"2"]], [[b"5"]]]
    await model.drain_and_close()


async def test_every_input_may_be_left_out(tmp_path):
    """Where each is optional."""
    inputs = io("input", "x", "counts").replace("dims: [-1]", "dims: [-1] optional: true")
    said = io("output", "SAID__0", datatype="STRING", dims="1")
    model = await served(tmp_path, modules.Told(), config([], [], inputs + said))

    answer = await outputs_of(model, {})

    assert answer["SAID__0"].tolist() == [[b"nothing"]]
    await model.drain_and_close()


async def test_bytes_that_are_no_text_are_the_callers_mistake(tmp_path):
    """PT-08."""
    model = await served(tmp_path, modules.Shout(), SHOUT)

    error = await failure(model, {"words": np.array([[b"\xff"]], object)})

    assert error.code is ErrorCode.INVALID_ARG
    assert "no UTF-8 text" in error.message
    await model.drain_and_close()


@pytest.mark.parametrize("kind", ["input", "output"])
async def test_text_of_two_dimensions_fails_the_load(tmp_path, kind):
    """PT-08."""
    head, _, tail = SHOUT.partition("output" if kind == "output" else "input")
    text = f"{head}{kind}{tail.replace('[1]', '[1, 2]', 1)}"

    error = await refused(tmp_path, modules.Shout(), text)

    assert f"only supports 1 dimensional List of String as {kind}" in error.message


@pytest.mark.parametrize("datatype", [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
    "FP32", "FP64", "BF16",
])  # fmt: skip
async def test_every_data_type_passes_unchanged(tmp_path, datatype):
    """PT-06."""
    text = 'name: "m" backend: "pytorch" max_batch_size: 8\n' + io("input", "x", datatype=datatype)
    model = await served(tmp_path, modules.One(), text + io("output", "y", datatype=datatype))
    sent = np.array([[1, 0, 3]], np.float32).astype(BY_NAME[datatype].dtype)

    answer = (await outputs_of(model, {"x": sent}))["y"]

    assert answer.dtype == sent.dtype
    np.testing.assert_array_equal(answer, sent)
    await model.drain_and_close()


async def test_a_batch_is_put_together_and_cut_again(tmp_path):
    model = await served(
        tmp_path, modules.Sums(), config(["left", "right"], ["S", "D"], "dynamic_batching {}")
    )
    sent = [np.full((1 + i % 2, 4), i, np.float32) for i in range(5)]

    answers = await asyncio.gather(*(outputs_of(model, {"left": x, "right": x}) for x in sent))

    for x, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer["S"], x + x)
        np.testing.assert_array_equal(answer["D"], x - x)
    assert model.stats.snapshot().execution_count == 1
    await model.drain_and_close()


async def test_a_batch_over_the_limit_is_refused_with_the_limit(tmp_path):
    """PT-27."""
    model = await served(tmp_path, modules.One(), config("x", ["y"], batch=2))

    error = await failure(model, {"x": np.ones((3, 1), np.float32)})

    assert error.code is ErrorCode.INVALID_ARG
    assert "2" in error.message
    await model.drain_and_close()


async def test_shapes_that_do_not_fit_are_the_callers_mistake_in_one_line(tmp_path):
    model = await served(tmp_path, modules.Sums(), config(["left", "right"], ["S"]))

    error = await failure(model, {"left": row(1, 2), "right": row(1, 2, 3)})

    assert error.code is ErrorCode.INVALID_ARG
    assert error.message == (
        "PyTorch execute failure: model 'm': The size of tensor a (2) must match the size of "
        "tensor b (3) at non-singleton dimension 1"
    )
    await model.drain_and_close()


async def test_values_that_a_module_itself_refuses_are_the_callers_mistake(tmp_path):
    model = await served(tmp_path, modules.Picky(), config("x", ["y"]))

    error = await failure(model, {"x": row(1, 2)})

    assert error.code is ErrorCode.INVALID_ARG
    assert error.message.endswith("model 'm': provided number of samples is 2, expected 512")
    await model.drain_and_close()


@pytest.mark.parametrize("size", [4, 40_000])
@pytest.mark.parametrize("is_writable", [True, False])
async def test_a_module_that_writes_to_its_input_leaves_the_callers_bytes(
    tmp_path, size, is_writable
):
    """Other steps of an ensemble, or the caller's own program, look at them too."""
    model = await served(tmp_path, modules.InPlace(), config("x", ["y"]))
    sent = np.zeros((1, size), np.float32)
    sent.flags.writeable = is_writable

    answer = (await outputs_of(model, {"x": sent}))["y"]

    assert answer.sum() == size
    assert not sent.any()
    await model.drain_and_close()


@pytest.mark.parametrize("module", [modules.Previous, modules.Hoards])
async def test_a_module_may_keep_its_input(tmp_path, module):
    """A caller in the same program may use its array again, and memory is shared with processes."""
    model = await served(tmp_path, module(), config("x", ["y"]))
    sent = np.full((1, 40_000), 7, np.float32)
    await outputs_of(model, {"x": sent})
    sent[:] = 0

    answer = (await outputs_of(model, {"x": sent}))["y"]

    assert answer.mean() == 7
    await model.drain_and_close()


async def test_what_a_module_keeps_does_not_change_answers_that_were_given(tmp_path):
    model = await served(tmp_path, modules.Counter(), config("x", ["y"]))

    answers = [(await outputs_of(model, {"x": row(0)}))["y"] for _ in range(3)]

    assert [answer.item() for answer in answers] == [1, 2, 3]
    await model.drain_and_close()


async def test_a_missing_file_is_unavailable(tmp_path):
    """PT-29."""
    (tmp_path / "1").mkdir()
    with pytest.raises(ServingError) as caught:
        await load(config("x", ["y"]), tmp_path)

    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert "unable to find '1/model.pt' for model 'm'" in caught.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"none", "model 'm': 1/model.pt: PytorchStreamReader failed reading zip archive"),
        (None, "it holds no TorchScript module"),
    ],
)
async def test_a_file_that_torch_cannot_load_says_so_in_one_line(tmp_path, content, words):
    """PT-29."""
    (tmp_path / "1").mkdir()
    if content is None:
        torch.save(modules.Net().state_dict(), tmp_path / "1" / "model.pt")
    else:
        (tmp_path / "1" / "model.pt").write_bytes(content)
    with pytest.raises(ServingError) as caught:
        await load(config("x", ["y"]), tmp_path)

    assert caught.value.__cause__.code is ErrorCode.INTERNAL
    assert words in caught.value.message
    assert "\n" not in caught.value.message


async def test_a_module_without_forward_is_refused(tmp_path):
    """PT-29."""
    error = await refused(tmp_path, modules.WithoutForward(), config("x", ["y"]))

    assert "1/model.pt: the module has no method forward" in error.message


async def test_an_archive_of_the_other_kind_is_sent_to_its_platform(tmp_path):
    """PT-01, PT-29."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.pt2").write_bytes(b"no TorchScript")
    with pytest.raises(ServingError, match='is loaded with platform: "torch_aoti"'):
        await load(config("x", ["y"], 'default_model_filename: "model.pt2"'), tmp_path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('name: "m" backend: "pytorch" max_batch_size: 1\n' + io("output", "y"), "input"),
        ('name: "m" backend: "pytorch" max_batch_size: 1\n' + io("input", "x"), "output"),
    ],
)
async def test_inputs_and_outputs_must_be_in_the_config(tmp_path, text, kind):
    """AUT-07."""
    error = await refused(tmp_path, modules.One(), text)

    assert f"must contain at least one {kind}, none were specified" in error.message


async def test_bf16_is_not_rounded(tmp_path):
    text = 'name: "m" backend: "pytorch" max_batch_size: 0\n'
    text += io("input", "x", datatype="BF16") + io("output", "y", datatype="BF16")
    model = await served(tmp_path, modules.One(), text)
    sent = np.arange(60_000).astype(np.uint16).view(ml_dtypes.bfloat16)

    answer = (await outputs_of(model, {"x": sent}))["y"]

    np.testing.assert_array_equal(answer.view(np.uint16), sent.view(np.uint16))
    await model.drain_and_close()
