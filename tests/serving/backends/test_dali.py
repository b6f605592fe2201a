"""The dali backend on real pipelines; DALI comes with `make test-all` (DALI-01)."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving.errors import ErrorCode, ServingError
from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.loading import infer, load, outputs_of, request_of

pytest.importorskip("nvidia.dali", reason="needs nvidia-dali-cuda130: `make test-all` installs it")
pytestmark = pytest.mark.heavy

SCALE = """
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.triton import autoserialize

@autoserialize
@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def scale():
    return fn.external_source(name="IN", device="cpu") * 2.0
"""
DECODE = """
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.triton import autoserialize

@autoserialize
@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def decode():
    image = fn.decoders.image(fn.external_source(name="ENCODED", device="cpu"), device="cpu")
    return fn.resize(image, resize_x=8, resize_y=6), image
"""
SCALE_CONFIG = """backend: "dali" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
SUM = SCALE.replace("* 2.0", '+ fn.external_source(name="B", device="cpu")')
SUM_CONFIG = f'name: "m" {SCALE_CONFIG}'
DECODE_CONFIG = """name: "m" backend: "dali" max_batch_size: 4
input { name: "ENCODED" data_type: TYPE_UINT8 dims: [-1] allow_ragged_batch: true }
output [{ name: "SMALL" data_type: TYPE_UINT8 dims: [6, 8, 3] },
        { name: "FULL" data_type: TYPE_UINT8 dims: [-1, -1, 3] }]
dynamic_batching { max_queue_delay_microseconds: 50000 }
"""


def write(directory: Path, source: str) -> None:
    (directory / "1").mkdir(parents=True, exist_ok=True)
    (directory / "1" / "dali.py").write_text(source)


def png(width: int, height: int, colour: int) -> np.ndarray:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (colour, 0, 0)).save(file, "PNG")
    return np.frombuffer(file.getvalue(), np.uint8)[None]


class TestContract(BackendContract):
    backend = "dali"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls) -> Subject:
        return Subject(
            config=SCALE_CONFIG,
            write=lambda version: write(version.parent, SCALE),
            inputs=lambda rows: {"IN": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)},
            expected=lambda inputs: {"OUT": inputs["IN"] * 2},
            completes=False,
            runtime_module="nvidia.dali",
        )


async def test_images_of_different_sizes_share_a_batch_and_one_that_is_none_fails_alone(tmp_path):
    write(tmp_path, DECODE)
    model = await load(DECODE_CONFIG, tmp_path)
    images = [png(10 + i, 12, 40 * i) for i in range(3)]
    broken = np.arange(50, dtype=np.uint8)[None]

    async def ask(image: np.ndarray) -> dict[str, np.ndarray] | ServingError:
        try:
            return await outputs_of(model, {"ENCODED": image})
        except ServingError as error:
            return error

    first, bad, *others = await asyncio.gather(*map(ask, [images[0], broken, *images[1:]]))

    assert isinstance(bad, ServingError)
    assert bad.code is ErrorCode.INVALID_ARG
    assert bad.message.startswith("model 'm' could not process the request: fn.decoders.image: ")
    for i, answer in enumerate([first, *others]):
        assert isinstance(answer, dict)
        assert answer["SMALL"].shape == (1, 6, 8, 3)
        assert answer["FULL"].shape == (1, 12, 10 + i, 3)
        assert (answer["FULL"][..., 0] == 40 * i).all()
    await model.drain_and_close()


async def test_samples_of_one_request_must_come_out_alike(tmp_path):
    write(tmp_path, DECODE)
    model = await load(DECODE_CONFIG, tmp_path)
    a, b = png(10, 12, 1)[0], png(20, 12, 2)[0]
    size = max(len(a), len(b))
    both = np.stack([np.pad(item, (0, size - len(item))) for item in (a, b)])

    small = await outputs_of(model, {"ENCODED": both}, outputs=("SMALL",))
    assert small["SMALL"].shape == (2, 6, 8, 3)

    response = await infer(model, request_of({"ENCODED": both}))
    assert response.error is not None
    assert "samples of different shapes in one request" in response.error.message
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("config", "source", "words"),
    [
        (DECODE_CONFIG.replace("ENCODED", "OTHER"), DECODE, "no external source named 'OTHER'"),
        (DECODE_CONFIG, SCALE.replace('"IN"', '"ENCODED"'), r"has 1 output\(s\), the config lists"),
        (SUM_CONFIG, SUM, "has an external source 'B', and the config has no such input"),
        (
            SUM_CONFIG.replace("dims: [-1] }", "dims: [-1] optional: true }", 1),
            SCALE,
            "'IN' of model 'm' is optional",
        ),
        (SUM_CONFIG.replace("TYPE_FP32", "TYPE_STRING"), SCALE, "'IN' of model 'm' is TYPE_STRING"),
        (SUM_CONFIG.replace("TYPE_FP32", "TYPE_BF16"), SCALE, "'IN' of model 'm' is TYPE_BF16"),
        (DECODE_CONFIG, "import os; os.abort()", "the process was killed by signal SIGABRT"),
        (DECODE_CONFIG, "x = 1", "must mark one pipeline with @autoserialize, found 0"),
        (DECODE_CONFIG, "raise RuntimeError('not today')", "RuntimeError: not today"),
        (DECODE_CONFIG + 'default_model_filename: "p"', DECODE, "unable to find '1/p'"),
        (
            DECODE_CONFIG + 'parameters { key: "num_threads" value { string_value: "many" } }',
            DECODE,
            "'num_threads' of model 'm' is 'many'",
        ),
        (DECODE_CONFIG + "model_transaction_policy { decoupled: true }", DECODE, "is decoupled"),
        ('name: "m" backend: "dali"', DECODE, "does not tell names and shapes"),
    ],
)
async def test_a_pipeline_that_does_not_fit_fails_the_load(tmp_path, config, source, words):
    write(tmp_path, source)

    with pytest.raises(ServingError, match=words):
        await load(config, tmp_path)


async def test_what_is_no_pipeline_fails_the_load(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.dali").write_bytes(b"none")

    with pytest.raises(ServingError, match="DALI cannot build its pipeline"):
        await load(DECODE_CONFIG, tmp_path)


async def test_a_row_may_be_a_single_number(tmp_path):
    """A sample without dimensions."""
    write(tmp_path, SCALE)
    scalars = SCALE_CONFIG.replace("dims: [-1]", "dims: [1] reshape { }")
    model = await load('name: "m" ' + scalars, tmp_path)

    outputs = await outputs_of(model, {"IN": np.array([[1], [2]], np.float32)})

    assert outputs["OUT"].tolist() == [[2], [4]]
    await model.drain_and_close()
