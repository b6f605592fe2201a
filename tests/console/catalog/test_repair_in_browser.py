"""The Fix buttons of the config editor, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.catalog.conftest import CONFIG
from tests.console.chromium import signed_in
from tests.console.web_server import WebServer
from tests.page import reload

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FIX = "#config-findings-list button[data-fix]"


@pytest.fixture
def open_page(web: WebServer, login: Any, operator: Any) -> Iterator[Any]:
    with signed_in(web, login(operator)) as browser:
        yield browser


def text_of(page: Any) -> str:
    return str(page.locator("#config-text").input_value())


def test_a_fix_mends_the_text_and_the_finding_goes(echo: Path, open_page: Any) -> None:
    (echo / "config.pbtxt").write_text(CONFIG.replace("max_batch_size: 8", "max_batchsize: 8"))
    page = open_page("/models/echo/config/")
    page.locator(".ace-conch").wait_for()

    page.get_by_role("button", name="Fix: Write max_batch_size").click()

    page.locator(FIX).wait_for(state="detached")
    assert text_of(page) == CONFIG
    assert page.evaluate("document.activeElement.className").startswith("ace_text-input")
    page.keyboard.press("Control+z")
    page.locator(FIX).wait_for()
    assert "max_batchsize" in text_of(page)


def test_a_fix_works_from_the_keyboard_after_a_live_check(echo: Path, open_page: Any) -> None:
    page = open_page("/models/echo/config/")
    page.locator(".ace_text-input").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(f"# é 😀\n# 😀 // here: kept\n// gone\n{CONFIG}")
    page.locator(FIX).wait_for()

    # A further check would replace the button while the key is on its way.
    page.locator("form[data-checking]").wait_for(state="detached")
    page.locator(FIX).press("Enter")

    page.locator(FIX).wait_for(state="detached")
    assert text_of(page) == f"# é 😀\n# 😀 // here: kept\n# gone\n{CONFIG}"


def test_a_fix_of_a_text_that_has_changed_since_is_not_made(echo: Path, open_page: Any) -> None:
    wrong = CONFIG.replace("max_batch_size: 8", "max_batch_size: -8")
    (echo / "config.pbtxt").write_text(wrong)
    page = open_page("/models/echo/config/")
    page.locator(".ace-conch").wait_for()
    page.locator(FIX).wait_for()

    page.evaluate(
        """() => {
            const editor = ace.edit(document.querySelector(".code-editor"));
            editor.session.insert({row: 0, column: 0}, "#\\n");
            document.querySelector("#config-findings-list button[data-fix]").click();
        }"""
    )

    page.locator(f"{FIX}[data-line='5']").wait_for()
    assert text_of(page) == f"#\n{wrong}"
    page.locator(FIX).click()
    page.locator(FIX).wait_for(state="detached")
    assert text_of(page) == "#\n" + CONFIG.replace("max_batch_size: 8", "max_batch_size: 0")


def test_without_the_editor_the_plain_text_is_mended(echo: Path, open_page: Any) -> None:
    (echo / "config.pbtxt").write_text("# 😀\n" + CONFIG.replace('"onnxruntime"', "onnxruntime"))
    page = open_page("/models/echo/config/")
    empty = {"body": "", "content_type": "text/javascript"}
    page.route("**/django_ace/ace/*.js", lambda route: route.fulfill(**empty))
    reload(page)

    page.locator(FIX).click()

    page.locator(FIX).wait_for(state="detached")
    assert text_of(page) == f"# 😀\n{CONFIG}"


def test_a_viewer_has_nothing_to_fix_with(
    echo: Path, web: WebServer, login: Any, viewer: Any
) -> None:
    (echo / "config.pbtxt").write_text(CONFIG.replace("max_batch_size: 8", "max_batch_size: -8"))
    with signed_in(web, login(viewer)) as open_as_viewer:
        page = open_as_viewer("/models/echo/config/")
        page.locator("[data-severity=error]").first.wait_for()

        assert page.locator(FIX).count() == 0
