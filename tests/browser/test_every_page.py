"""Every page of a running Conch, both themes: axe, no script errors, no sideways scrolling."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.page import visit
from tests.system.conch import RunningConch

pytestmark = pytest.mark.browser

WIDE, PHONE = 1280, 390

PAGES = [
    "/",
    "/models/",
    "/models/?state=unavailable",
    "/models/word_stats/",
    "/models/word_stats/versions/",
    "/models/word_stats/config/",
    "/models/word_stats/statistics/",
    "/models/word_stats/history/",
    "/models/word_stats/try/",
    "/models/word_stats/try/?form=1",
    "/models/file_type/try/",
    "/models/speech_detector/try/",
    "/models/text_recognizer/try/",
    "/models/ocr/",
    "/models/ocr/try/",
    "/models/ocr_lines/",
    "/deployments/",
    "/deployments/1/",
    "/engines/",
    "/engines/new/file_type/",
    "/repository/",
    "/repository/word_stats/",
    "/repository/word_stats/1/",
    "/repository/word_stats/config.pbtxt",
    "/repository/upload/",
    "/workers/",
    "/backends/",
    "/live/",
    "/live/?model=word_stats&range=15m",
    "/account/",
    "/settings/users/",
    "/settings/tokens/",
    "/settings/audit/",
]


@pytest.fixture
def themed(
    request: pytest.FixtureRequest, chromium: Browser, page: Page, conch: RunningConch
) -> Iterator[Page]:
    """The person of `page`, in another theme and with a content policy that lets axe work."""
    context = chromium.new_context(
        storage_state=page.context.storage_state(),
        color_scheme=request.param,
        viewport={"width": WIDE, "height": 900},
        reduced_motion="reduce",
        bypass_csp=True,
    )
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("themed", ["light", "dark"], indirect=True)
def test_axe_finds_nothing_on_any_page(themed: Page, conch: RunningConch) -> None:
    found = {path: violations(themed, conch.address + path) for path in PAGES}

    assert {path: report for path, report in found.items() if report} == {}


def violations(page: Page, address: str) -> str:
    answer = visit(page, address)
    assert answer is not None
    assert answer.ok, address
    settle(page)
    result = Axe().run(page)
    return str(result.generate_report()) if result.violations_count else ""


def settle(page: Page) -> None:
    """Until what scripts draw is there: behaviours, charts, the editor."""
    page.wait_for_load_state("load")
    if page.locator("[data-behavior~=live-chart]").count():
        page.locator(".main-svg").first.wait_for()
    if page.locator("[data-behavior~=config-editor]").count():
        page.locator(".ace_content").first.wait_for()


def test_no_page_complains_or_scrolls_sideways_on_a_phone(
    page: Page, conch: RunningConch, problems: list[str]
) -> None:
    page.set_viewport_size({"width": PHONE, "height": 844})
    too_wide = {}
    for path in PAGES:
        visit(page, conch.address + path)
        settle(page)
        root = "document.documentElement"
        if over := page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"):
            too_wide[path] = over
        assert problems == [], path

    assert too_wide == {}


def test_pages_say_the_same_without_script(
    chromium: Browser, page: Page, conch: RunningConch
) -> None:
    context = chromium.new_context(
        storage_state=page.context.storage_state(), java_script_enabled=False
    )
    plain = context.new_page()

    plain.goto(f"{conch.address}/models/word_stats/")

    assert not plain.get_by_role("button", name="Pause").is_visible()
    assert not plain.get_by_role("button", name="Unload…").is_visible()
    assert plain.get_by_role("button", name="Unload", exact=True).is_visible()
    context.close()
