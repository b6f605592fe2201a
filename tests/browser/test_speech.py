"""The speech model's own view: a sound goes through gateway and worker as one sequence."""

from __future__ import annotations

import re
from contextlib import closing

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.page import visit
from tests.system.conch import RunningConch

pytestmark = pytest.mark.browser

MODEL = "speech_detector"


def is_ready(client: httpx.Client) -> bool:
    rows = client.get("/api/v1/models").json()
    return any(row["name"] == MODEL and row["state"] == "ready" for row in rows)


def test_a_voice_is_heard_and_a_hum_is_not(page: Page, conch: RunningConch) -> None:
    with closing(conch.logged_in()) as client:
        conch.wait_for(lambda: is_ready(client))
    visit(page, f"{conch.address}/models/{MODEL}/try/")
    verdict = page.locator(".verdict-word")

    page.get_by_role("button", name="Voice-like sound").click()
    expect(verdict).to_have_text(re.compile(r"Speech in [1-9][\d.]* % of the time"))
    expect(page.locator("[data-part=answer]")).to_contain_text("200 OK · 125 requests")
    points = page.locator(".chart-line").get_attribute("points") or ""
    assert len(points.split()) == 125

    page.get_by_role("button", name="Hum").click()
    expect(verdict).to_have_text("No speech found")
    expect(page.locator("[data-part=answer]")).to_contain_text("63 requests")
