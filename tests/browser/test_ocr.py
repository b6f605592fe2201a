"""Image -> text in the console: the view of the ensemble `ocr`, and its page with the steps."""

from __future__ import annotations

import re
from contextlib import closing

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.examples.pictures import page as picture
from tests.page import visit
from tests.system.conch import RunningConch

pytestmark = pytest.mark.browser

PARTS = ["ocr_image", "text_detector", "ocr_lines", "text_recognizer", "ocr_text"]


def is_ready(client: httpx.Client) -> bool:
    rows = client.get("/api/v1/models").json()
    ready = {row["name"] for row in rows if row["state"] == "ready"}
    return ready >= {"ocr", *PARTS}


@pytest.fixture
def ocr(page: Page, conch: RunningConch) -> Page:
    with closing(conch.logged_in()) as client:
        conch.wait_for(lambda: is_ready(client), 60)
    return page


def test_a_dropped_image_shows_its_lines(ocr: Page, conch: RunningConch) -> None:
    visit(ocr, f"{conch.address}/models/ocr/try/")
    image = {"name": "invoice.png", "mimeType": "image/png", "buffer": picture(angle=3)}

    ocr.locator("input[type=file]").set_input_files(image)  # type: ignore[arg-type]

    expect(ocr.get_by_text("4 lines of text")).to_be_visible()
    expect(ocr.get_by_role("cell", name="Invoice 2026-0417")).to_be_visible()
    expect(ocr.locator(".text-box")).to_have_count(4)
    expect(ocr.locator("[data-part=answer]")).to_contain_text("200 OK")


def test_a_drawn_text_is_read_and_a_broken_image_refused(ocr: Page, conch: RunningConch) -> None:
    visit(ocr, f"{conch.address}/models/ocr/try/")
    ocr.get_by_label("Or let this text be drawn").fill("Hello from a drawing")
    ocr.get_by_role("button", name="Draw and read").click()
    expect(ocr.get_by_text("1 line of text")).to_be_visible()
    expect(ocr.get_by_role("row", name="Hello from a drawing")).to_be_visible()

    broken = {"name": "note.png", "mimeType": "image/png", "buffer": b"no image"}
    ocr.locator("input[type=file]").set_input_files(broken)  # type: ignore[arg-type]

    expect(ocr.locator(".verdict")).to_contain_text("not an image that the browser can read")


def test_the_steps_lead_to_the_parts_and_back(ocr: Page, conch: RunningConch) -> None:
    visit(ocr, f"{conch.address}/models/ocr/")
    expect(ocr.locator(".step-list > li")).to_have_count(5)
    expect(ocr.locator(".step-list .state--ok")).to_have_count(5)
    expect(ocr.locator(".step-box")).to_have_text([re.compile(f"{part}Ready") for part in PARTS])

    ocr.locator(".step-list").get_by_role("link", name="ocr_lines").click()
    expect(ocr.locator("h1")).to_contain_text("ocr_lines")
    ocr.locator("#content").get_by_role("link", name="ocr", exact=True).click()
    expect(ocr.locator("h1")).to_contain_text("ocr Ready")
