"""The whole road in a browser: upload, mend, publish, load, ask, watch, unload."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Page, expect

from tests.page import visit
from tests.system.conch import RunningConch

pytestmark = pytest.mark.browser

CONFIG = """\
name: "doubler"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 64 ]
}
"""


def doubler() -> bytes:
    """y = 2 x over [batch, 4]."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["y"])],
        "doubler",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(np.array([2.0], np.float32), "two")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("doubler/config.pbtxt", CONFIG)
        file.writestr("doubler/1/model.onnx", doubler())
    return buffer.getvalue()


def test_an_uploaded_model_with_a_mistake_is_mended_served_and_watched(
    page: Page, conch: RunningConch
) -> None:
    upload_and_see_the_finding(page, conch)
    mend_publish_and_load(page)
    send_requests(page, conch)
    see_the_chart_move(page, conch)
    unload(page, conch)
    see_the_form_when_it_is_served_again(page, conch)


def upload_and_see_the_finding(page: Page, conch: RunningConch) -> None:
    visit(page, f"{conch.address}/repository/upload/")
    zipped = {"name": "doubler.zip", "mimeType": "application/zip", "buffer": archive()}
    page.locator("input[type=file]").first.set_input_files(zipped)  # type: ignore[arg-type]
    page.get_by_role("button", name="Upload and check").click()
    page.get_by_role("heading", name="Checks").wait_for()

    finding = page.locator("#config-findings-list .finding--error")
    expect(finding.first).to_contain_text("line 7")
    expect(finding.first).to_contain_text("64")
    expect(page.locator(".ace_gutter-cell.ace_error")).to_have_text("7")
    expect(page.get_by_role("button", name="Publish and load")).to_be_disabled()


def mend_publish_and_load(page: Page) -> None:
    page.locator(".ace_text-input").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(CONFIG.replace("[ 4, 64 ]", "[ 4, 8 ]"))
    expect(page.locator("#config-findings-list .finding--error")).to_have_count(0)
    page.get_by_role("button", name="Save and check").click()
    page.get_by_role("button", name="Publish and load").and_(page.locator(":enabled")).click()
    page.get_by_text("serves version 1").wait_for(timeout=30_000)
    page.get_by_role("link", name="doubler", exact=True).first.click()

    expect(page.locator("h1")).to_contain_text("Ready")


def send_requests(page: Page, conch: RunningConch) -> None:
    visit(page, f"{conch.address}/models/doubler/try/")
    page.get_by_label("Values of x").fill("[1, 2, 3, 4]")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("row", name="[0] 2 4 6 8")).to_be_visible()


def see_the_chart_move(page: Page, conch: RunningConch) -> None:
    visit(page, f"{conch.address}/live/?model=doubler")
    chart = page.locator("figure", has=page.get_by_role("heading", name="Throughput"))
    expect(page.get_by_text("Live · updated")).to_be_visible()

    page.evaluate(ASK_UNTIL_THE_PAGE_GOES)

    # Its last point, which is of this second, so the requests go on until it has been seen.
    expect(chart).to_contain_text(re.compile(r"doubler [1-9][\d,.]* /s"), timeout=20_000)


ASK_UNTIL_THE_PAGE_GOES = """() => {
  const inputs = [{name: "x", datatype: "FP32", shape: [1, 4], data: [1, 2, 3, 4]}];
  const ask = async () => {
    const answer = await fetch("/v2/models/doubler/infer", {
      method: "POST", body: JSON.stringify({inputs}),
    });
    if (!answer.ok) throw new Error(await answer.text());
    setTimeout(ask, 20);
  };
  ask();
}"""


def unload(page: Page, conch: RunningConch) -> None:
    visit(page, f"{conch.address}/models/doubler/")
    page.get_by_role("button", name="Unload…").click()
    page.locator("dialog[open]").get_by_role("button", name=re.compile("^Unload")).click()
    expect(page.locator("h1")).to_contain_text("Not served", timeout=30_000)


def see_the_form_when_it_is_served_again(page: Page, conch: RunningConch) -> None:
    visit(page, f"{conch.address}/models/doubler/try/")
    expect(page.get_by_text("No worker serves doubler now.")).to_be_visible()

    elsewhere = page.context.new_page()
    visit(elsewhere, f"{conch.address}/models/doubler/")
    elsewhere.get_by_role("button", name="Load…").click()
    elsewhere.locator("dialog[open]").get_by_role("button", name=re.compile("^Load")).click()

    expect(page.get_by_label("Values of x")).to_be_visible(timeout=30_000)


def test_a_dropped_file_shows_its_type(page: Page, conch: RunningConch, tmp_path: Path) -> None:
    visit(page, f"{conch.address}/models/file_type/try/")
    expect(page.locator("h1")).to_contain_text("Ready", timeout=30_000)
    script = (
        b"#!/usr/bin/env python3\nimport sys\n\n\ndef main():\n    print(sys.argv)\n\n\nmain()\n"
    )
    source = {"name": "unnamed", "mimeType": "application/octet-stream", "buffer": script}

    page.locator("input[type=file]").first.set_input_files(source)  # type: ignore[arg-type]

    expect(page.get_by_text("python").first).to_be_visible()
