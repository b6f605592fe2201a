"""A real Chromium against a running Conch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.page import until_bound, visit
from tests.system.conch import RunningConch


# Not for the whole session: Playwright's sync half keeps a loop running in this thread, beside
# which neither asynchronous tests nor a second Playwright can run.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=quiet)
        yield browser
        browser.close()


@pytest.fixture
def problems() -> list[str]:
    """What pages complained about: script errors and refused content."""
    return []


@pytest.fixture
def page(chromium: Browser, conch: RunningConch, problems: list[str]) -> Iterator[Page]:
    """A page where the first administrator has logged in through the form."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: note(message, problems))
    visit(page, f"{conch.address}/login/")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password", exact=True).fill(conch.password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    until_bound(page)
    yield page
    context.close()
    assert problems == []


def note(message: Any, problems: list[str]) -> None:
    if message.type == "error":
        problems.append(message.text)
