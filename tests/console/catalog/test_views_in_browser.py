"""The views that demo models ask for by their `try_it` parameter, in Chromium; `/v2` is played."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from tests.console.catalog.test_in_browser import Open, open_page
from tests.console.catalog.test_try_it_js import expected_features
from tests.console.fakes import FakeWorkerClient
from workers.messages import ModelDescription

__all__ = ["open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def describe(
    served: FakeWorkerClient, view: str, inputs: list[Any], outputs: list[Any], **config: Any
) -> None:
    """`echo` becomes a model with these (name, datatype, shape) and the view `view`."""
    keys = ("name", "datatype", "shape")
    served.descriptions["echo"] = ModelDescription(
        metadata={
            "name": "echo",
            "inputs": [dict(zip(keys, item, strict=True)) for item in inputs],
            "outputs": [dict(zip(keys, item, strict=True)) for item in outputs],
        },
        config={"parameters": {"try_it": {"string_value": view}}, **config},
        statistics={},
    )


def tensors_of(body: bytes, header_length: int) -> dict[str, bytes]:
    """Input name -> its bytes, of a request with binary tensors."""
    header = json.loads(body[:header_length])
    at = header_length
    found = {}
    for item in header["inputs"]:
        size = item["parameters"]["binary_data_size"]
        found[item["name"]] = body[at : at + size]
        at += size
    return found


def sent_tensors(request: Any) -> dict[str, bytes]:
    length = int(request.headers["inference-header-content-length"])
    return tensors_of(request.post_data_buffer, length)


def binary_answer(outputs: dict[str, tuple[list[int], bytes]]) -> dict[str, Any]:
    header = {
        "model_name": "echo",
        "outputs": [
            {
                "name": name,
                "datatype": "FP32",
                "shape": shape,
                "parameters": {"binary_data_size": len(data)},
            }
            for name, (shape, data) in outputs.items()
        ],
    }
    head = json.dumps(header).encode()
    body = head + b"".join(data for _, data in outputs.values())
    return {
        "status": 200,
        "body": body,
        "headers": {"Inference-Header-Content-Length": str(len(head))},
    }


DROP = """(zone) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["  #!/usr/bin/env python3\\nprint('hello')\\n\\n"], "hello.py"));
    const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
    zone.dispatchEvent(new DragEvent("dragover", options));
    zone.dispatchEvent(new DragEvent("drop", options));
}"""


def test_a_dropped_file_gets_its_type(served: FakeWorkerClient, open_page: Open) -> None:
    describe(
        served,
        "file_ends",
        [("bytes", "INT32", [-1, 2048])],
        [("target_label", "FP32", [-1, 214])],
        max_batch_size=16,
    )
    page = open_page("/models/echo/try/")
    requests: list[Any] = []
    labels = ["0.900000:143:python", "0.050000:9:c:odd label"]
    output = {"name": "target_label", "datatype": "BYTES", "shape": [1, 2], "data": labels}

    def answer(route: Any) -> None:
        requests.append(route.request)
        route.fulfill(status=200, body=json.dumps({"outputs": [output]}))

    page.route("**/v2/**", answer)
    page.locator(".drop-zone").evaluate(DROP)
    page.locator(".verdict-word").wait_for()

    assert page.locator(".verdict-word").inner_text() == "python"
    assert "The model is 90.0 % sure." in page.locator(".verdict").inner_text()
    assert page.locator(".verdict").get_by_role("cell", name="c:odd label").is_visible()
    vector = np.frombuffer(sent_tensors(requests[0])["bytes"], "<i4").tolist()
    assert vector == expected_features(b"  #!/usr/bin/env python3\nprint('hello')\n\n")


SPEECH = [("input", "FP32", [1, 576]), ("sr", "INT64", [1])], [("output", "FP32", [1, 1])]


class PlayedSpeech:
    """A model with state behind `/v2`: silent for 30 windows of a sequence, then loud."""

    def __init__(self) -> None:
        self.sequences: dict[int, list[tuple[bool, bool]]] = {}
        """Id -> start and end of each request."""
        self.workers: list[str | None] = []
        """Who each request asks for."""

    def __call__(self, route: Any) -> None:
        request = route.request
        length = int(request.headers["inference-header-content-length"])
        parameters = json.loads(request.post_data_buffer[:length])["parameters"]
        seen = self.sequences.setdefault(parameters["sequence_id"], [])
        seen.append((parameters["sequence_start"], parameters["sequence_end"]))
        self.workers.append(request.headers.get("x-conch-worker"))
        assert len(sent_tensors(request)["input"]) == 4 * 576
        loud = 0.9 if len(seen) > 30 else 0.1
        answer = binary_answer({"output": ([1, 1], struct.pack("<f", loud))})
        answer["headers"]["X-Conch-Worker"] = "w7"
        route.fulfill(**answer)


def test_a_sound_is_one_sequence_of_windows(served: FakeWorkerClient, open_page: Open) -> None:
    describe(served, "speech_chunks", *SPEECH)
    page = open_page("/models/echo/try/")
    model = PlayedSpeech()
    page.route("**/v2/**", model)
    page.get_by_role("button", name="Hum").click()
    page.locator(".verdict-word", has_text="Speech in 52.4 % of the time").wait_for()

    ((sequence_id, flags),) = model.sequences.items()
    assert 0 < sequence_id < 2**53
    assert flags == [(True, False), *[(False, False)] * 61, (False, True)]
    assert model.workers == [None, *["w7"] * 62]
    assert page.get_by_role("cell", name="0.96", exact=True).is_visible()
    assert "63 requests" in page.locator("[data-part=answer]").inner_text()
    assert len(page.locator(".chart-line").get_attribute("points").split()) == 63


def test_the_line_grows_while_the_answers_come(served: FakeWorkerClient, open_page: Open) -> None:
    describe(served, "speech_chunks", *SPEECH)
    page = open_page("/models/echo/try/")
    model = PlayedSpeech()
    held: list[Any] = []

    def answer(route: Any) -> None:
        if len(model.workers) == 18:  # 0.576 s: the first that reads 0.6
            held.append(route)
        else:
            model(route)

    page.route("**/v2/**", answer)
    page.get_by_role("button", name="Hum").click()
    page.locator(".verdict", has_text="0.6 of 2.0 s").wait_for()

    assert page.locator(".verdict-word").inner_text() == "Listening …"
    assert len(page.locator(".chart-line").get_attribute("points").split()) == 18
    model(held.pop())
    page.locator(".verdict-word", has_text="Speech in").wait_for()


def test_another_sound_ends_the_sequence_of_the_first(
    served: FakeWorkerClient, open_page: Open
) -> None:
    describe(served, "speech_chunks", *SPEECH)
    page = open_page("/models/echo/try/")
    model = PlayedSpeech()
    held: list[Any] = []

    def answer(route: Any) -> None:
        if len(model.workers) == 5 and not held:
            held.append(route)
        else:
            model(route)

    page.route("**/v2/**", answer)
    page.get_by_role("button", name="Hum").click()
    page.locator(".verdict", has_text="0.2 of 2.0 s").wait_for()
    page.get_by_role("button", name="Voice-like sound").click()
    page.locator(".verdict", has_text="Voice-like sound").wait_for()
    model(held[0])
    page.locator(".verdict-word", has_text="Speech in").wait_for()

    first, second = model.sequences.values()
    assert first[-1] == (False, True)
    assert len(first) < 63
    assert second[-1] == (False, True)
    assert len(second) == 125
    assert "125 requests" in page.locator(".verdict").inner_text()


def test_a_drawn_line_is_read(served: FakeWorkerClient, open_page: Open) -> None:
    describe(
        served,
        "text_line_ctc",
        [("x", "FP32", [-1, 3, 48, -1])],
        [("y", "FP32", [-1, -1, 3])],
        max_batch_size=8,
    )
    page = open_page("/models/echo/try/")
    shapes: list[Any] = []

    def answer(route: Any) -> None:
        pixels = np.frombuffer(sent_tensors(route.request)["x"], "<f4")
        shapes.append((pixels.size // (3 * 48), float(pixels.min()), float(pixels.max())))
        scores = np.eye(3, dtype=np.float32)[[1, 0, 1, 2]]
        route.fulfill(**binary_answer({"y": ([1, 4, 3], scores.tobytes())}))

    page.route("**/v2/**", answer)
    page.route(
        "**/try/labels/**",
        lambda route: route.fulfill(status=200, body='{"labels": ["<blank>", "a", "b"]}'),
    )
    page.get_by_label("Or draw this text").fill("Any text at all, it is played")
    page.get_by_role("button", name="Draw and read").click()
    page.locator(".verdict-word").wait_for()

    assert page.locator(".verdict-word").inner_text() == "aab"
    [(width, lowest, highest)] = shapes
    assert width > 320
    assert (lowest, highest) == (-1.0, 1.0)


READ = {
    "outputs": [
        {"name": "TEXT", "datatype": "BYTES", "shape": [2], "data": ["first line", "second"]},
        {"name": "SCORE", "datatype": "FP32", "shape": [2], "data": [0.987, 0.75]},
        {
            "name": "BOX",
            "datatype": "FP32",
            "shape": [2, 4, 2],
            "data": [20, 10, 200, 10, 200, 40, 20, 40, 20, 60, 120, 60, 120, 90, 20, 90],
        },
    ]
}
PASTE = """async () => {
    const canvas = new OffscreenCanvas(320, 120);
    canvas.getContext("2d").fillRect(0, 0, 10, 10);
    const blob = await canvas.convertToBlob({ type: "image/png" });
    const transfer = new DataTransfer();
    transfer.items.add(new File([blob], "pasted.png", { type: "image/png" }));
    document.body.dispatchEvent(
        new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }),
    );
}"""


@pytest.fixture
def reader(served: FakeWorkerClient, open_page: Open) -> Any:
    """The page of a model that reads text, which is found by its signature alone."""
    outputs = [("TEXT", "BYTES", [-1]), ("SCORE", "FP32", [-1]), ("BOX", "FP32", [-1, 4, 2])]
    describe(served, "", [("IMAGE", "BYTES", [1])], outputs)
    return open_page("/models/echo/try/")


def test_the_lines_of_a_drawn_page_are_outlined_and_listed(reader: Any) -> None:
    files: list[bytes] = []

    def answer(route: Any) -> None:
        files.append(sent_tensors(route.request)["IMAGE"])
        route.fulfill(status=200, body=json.dumps(READ))

    reader.route("**/v2/**", answer)
    reader.get_by_role("button", name="Draw and read").click()
    reader.get_by_text("2 lines of text").wait_for()

    [content] = files
    assert content[:12] == struct.pack("<I", len(content) - 4) + b"\x89PNG\r\n\x1a\n"
    assert reader.get_by_role("row", name="1 first line 98.7 %").is_visible()
    outlines = reader.locator(".text-box-line")
    assert outlines.count() == 2
    assert outlines.first.get_attribute("points") == "20,10 200,10 200,40 20,40"
    reader.get_by_role("row", name="2 second").hover()
    assert reader.locator(".text-box.is-current").get_attribute("data-line") == "1"


def test_a_pasted_image_is_read(reader: Any) -> None:
    reader.route("**/v2/**", lambda route: route.fulfill(status=200, body=json.dumps(READ)))
    reader.get_by_role("button", name="Draw and read").wait_for()

    reader.evaluate(PASTE)

    reader.get_by_text("2 lines of text").wait_for()
    assert reader.locator(".read-image canvas").get_attribute("width") == "320"


def test_a_reader_without_boxes_and_scores_shows_its_text(
    served: FakeWorkerClient, open_page: Open
) -> None:
    describe(served, "image_text", [("IMAGE", "BYTES", [1])], [("TEXT", "BYTES", [-1])])
    page = open_page("/models/echo/try/")
    body = json.dumps({"outputs": READ["outputs"][:1]})
    page.route("**/v2/**", lambda route: route.fulfill(status=200, body=body))
    page.get_by_role("button", name="Draw and read").click()

    page.get_by_role("row", name="2 second").wait_for()
    assert page.locator(".text-box").count() == 0
    assert page.get_by_text("Confidence").count() == 0


def test_text_goes_in_and_values_come_out(served: FakeWorkerClient, open_page: Open) -> None:
    describe(
        served,
        "text",
        [("TEXT", "BYTES", [-1, 1])],
        [("WORDS", "INT32", [-1, 1])],
        max_batch_size=8,
    )
    page = open_page("/models/echo/try/")
    words = {"name": "WORDS", "datatype": "INT32", "shape": [1, 1], "data": [7]}
    body = json.dumps({"outputs": [words]})
    page.route("**/v2/**", lambda route: route.fulfill(status=200, body=body))
    page.get_by_label("Text").fill("seven words")
    page.get_by_role("button", name="Send").click()

    page.locator(".verdict-list dd", has_text="7").wait_for()


def test_every_input_can_be_given_by_hand_instead(
    served: FakeWorkerClient, open_page: Open
) -> None:
    describe(served, "text", [("TEXT", "BYTES", [1])], [("WORDS", "INT32", [1])])
    page = open_page("/models/echo/try/")

    page.get_by_role("link", name="Every input").click()

    page.get_by_label("Values of TEXT").wait_for()
    assert page.get_by_role("link", name="Simple view").is_visible()


def test_the_form_of_a_sequence_model_goes_through_a_sequence(
    served: FakeWorkerClient, open_page: Open
) -> None:
    tensors = [("x", "FP32", [1, 2])], [("y", "FP32", [1, 2])]
    describe(served, "", *tensors, sequence_batching={"direct": {}})
    page = open_page("/models/echo/try/")
    sent: list[Any] = []

    def answer(route: Any) -> None:
        parameters = route.request.post_data_json["parameters"]
        sent.append((*parameters.values(), route.request.headers.get("x-conch-worker")))
        route.fulfill(status=200, body='{"outputs": []}', headers={"X-Conch-Worker": "w7"})

    page.route("**/v2/**", answer)
    for number in range(1, 4):
        page.get_by_label("End: the last request").set_checked(number == 3)
        with page.expect_response("**/v2/**"):
            page.get_by_role("button", name="Send").click()
        page.locator("#try-start:checked" if number == 3 else "#try-start:not(:checked)").wait_for()

    assert len({sequence_id for sequence_id, *_ in sent}) == 1
    assert [rest for _, *rest in sent] == [
        [True, False, None],
        [False, False, "w7"],
        [False, True, "w7"],
    ]
    assert page.get_by_label("Sequence ID").input_value() != str(sent[0][0])
