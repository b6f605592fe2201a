"""Image -> text through a real `python -m serving`, asked by the unmodified client library."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.examples.conftest import REPOSITORY, skip_without_models
from tests.examples.pictures import INVOICE, page
from tests.serving.frontends.process import ServerProcess

TEXTS = sorted(text for text, _, _ in INVOICE)


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    """Only the ensemble is asked for; its parts come with it."""
    skip_without_models()
    arguments = (
        f"--model-repository={REPOSITORY}",
        *("--model-control-mode=explicit", "--load-model=ocr"),
    )
    with ServerProcess(arguments) as process:
        yield process


@pytest.fixture(params=[httpclient, grpcclient], ids=["http", "grpc"])
def asked(request: pytest.FixtureRequest, served: ServerProcess) -> Any:
    """`asked(content)`: the answer to an image file over one of the two protocols."""
    module = request.param
    address = served.http if module is httpclient else served.grpc

    def ask(content: bytes, outputs: tuple[str, ...] = ()) -> Any:
        image = module.InferInput("IMAGE", [1], "BYTES")
        image.set_data_from_numpy(np.array([content], np.object_))
        wanted = [module.InferRequestedOutput(name) for name in outputs]
        # A client each: that for HTTP belongs to one thread.
        with closing(module.InferenceServerClient(address)) as client:
            return client.infer("ocr", [image], outputs=wanted or None)

    return ask


def texts(answer: Any) -> list[str]:
    return sorted(text.decode() for text in answer.as_numpy("TEXT"))


def test_an_image_is_answered_by_its_lines_with_boxes_and_scores(asked: Any) -> None:
    answer = asked(page())

    assert texts(answer) == TEXTS
    assert (answer.as_numpy("SCORE") > 0.9).all()
    boxes = answer.as_numpy("BOX")
    assert boxes.shape == (4, 4, 2)
    for (text, x, y), box in zip(INVOICE, boxes, strict=True):
        left, top = box.min(axis=0)
        assert abs(left - x) < 8, text
        assert y - 4 < top < y + 16, text


def test_an_output_can_be_asked_for_alone(asked: Any) -> None:
    answer = asked(page(), ("TEXT",))

    assert texts(answer) == TEXTS
    assert answer.as_numpy("BOX") is None


def test_an_image_without_text_has_no_lines(asked: Any) -> None:
    answer = asked(page(()))

    assert answer.as_numpy("TEXT").shape == (0,)
    assert answer.as_numpy("BOX").shape == (0, 4, 2)


def test_what_is_no_image_is_the_callers_mistake(asked: Any) -> None:
    with pytest.raises(InferenceServerException) as refused:
        asked(b"no image")

    assert refused.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert "IMAGE is not an image" in refused.value.message()
    assert "ocr_image" in refused.value.message()


def test_images_asked_at_once_each_get_their_own_text(asked: Any) -> None:
    numbers = [f"Invoice {number:04}" for number in range(12)]

    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda text: texts(asked(page([(text, 60, 60)]))), numbers)

    assert list(answers) == [[text] for text in numbers]
