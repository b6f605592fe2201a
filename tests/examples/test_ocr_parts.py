"""The parts of the `ocr` example, each asked by itself as its step of the ensemble asks it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.server import ModelServer
from tests.examples.pictures import page
from tests.serving.loading import tensor


async def ask(server: ModelServer, model: str, **inputs: Any) -> InferenceResponse:
    future: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
    request = InferenceRequest(
        model,
        inputs={name: tensor(name, array) for name, array in inputs.items()},
        on_response=future.set_result,
    )
    server.infer(request)
    return await asyncio.wait_for(future, 60)


def arrays(response: InferenceResponse) -> dict[str, np.ndarray]:
    assert response.error is None, response.error
    return {output.name: output.array for output in response.outputs}


def file(content: bytes) -> np.ndarray:
    return np.array([content], np.object_)


async def test_a_picture_goes_through_all_parts(server: ModelServer) -> None:
    for name in ("ocr_image", "text_detector", "ocr_lines", "text_recognizer", "ocr_text"):
        await server.load_model(name)

    image = arrays(await ask(server, "ocr_image", IMAGE=file(page(angle=4))))
    assert image["PICTURE"].shape == (320, 760, 3)
    assert image["PIXELS"].shape == (1, 3, 320, 768)

    [text_map] = arrays(await ask(server, "text_detector", x=image["PIXELS"])).values()
    assert text_map.shape == (1, 1, 320, 768)

    lines = arrays(await ask(server, "ocr_lines", PICTURE=image["PICTURE"], TEXT_MAP=text_map))
    assert lines["LINES"].shape[:3] == (4, 3, 48)
    assert lines["BOXES"].shape == (4, 4, 2)

    [characters] = arrays(await ask(server, "text_recognizer", x=lines["LINES"])).values()
    text = arrays(await ask(server, "ocr_text", CHARACTERS=characters, BOXES=lines["BOXES"]))
    assert sorted(line.decode() for line in text["TEXT"]) == [
        "Conch serves models",
        "Invoice 2026-0417",
        "Total: 1,284.50 EUR",
        "right column",
    ]
    assert (text["SCORE"] > 0.9).all()
    assert text["BOX"].shape == (4, 4, 2)


async def test_a_blank_picture_has_no_lines(server: ModelServer) -> None:
    for name in ("ocr_image", "ocr_lines", "ocr_text"):
        await server.load_model(name)
    image = arrays(await ask(server, "ocr_image", IMAGE=file(page(()))))
    nothing = np.zeros((1, 1, 320, 768), np.float32)

    lines = arrays(await ask(server, "ocr_lines", PICTURE=image["PICTURE"], TEXT_MAP=nothing))
    assert lines["LINES"].shape == (1, 3, 48, 320)

    blank = np.zeros((1, 40, 6906), np.float32)
    blank[:, :, 0] = 1
    text = arrays(await ask(server, "ocr_text", CHARACTERS=blank, BOXES=lines["BOXES"]))
    shapes = {name: array.shape for name, array in text.items()}
    assert shapes == {"TEXT": (0,), "SCORE": (0,), "BOX": (0, 4, 2)}


async def test_every_usual_kind_of_image_is_read_and_others_are_refused(
    server: ModelServer,
) -> None:
    await server.load_model("ocr_image")

    for kind, mode in (("JPEG", "RGB"), ("WEBP", "RGB"), ("PNG", "RGBA"), ("PNG", "L")):
        image = arrays(await ask(server, "ocr_image", IMAGE=file(page(kind=kind, mode=mode))))
        assert image["PICTURE"].shape == (320, 760, 3)
        assert image["PICTURE"][0, 0].min() > 250, (kind, mode)

    refused = await ask(server, "ocr_image", IMAGE=file(b"no image"))
    assert "IMAGE is not an image. Send the content of a PNG" in str(refused.error)
    half = await ask(server, "ocr_image", IMAGE=file(page()[:900]))
    assert "IMAGE cannot be read to its end" in str(half.error)
