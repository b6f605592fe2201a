"""The models pages in a real Chromium: the editor, bulk choice, the Try it form, accessibility."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.deployments.models import Deployment
from console.repository.services import config_sha256
from tests.console.catalog.conftest import CONFIG, add_model
from tests.console.chromium import signed_in, violations
from tests.console.fakes import FakeWorkerClient
from tests.console.web_server import WebServer

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

Open = Callable[..., Any]


@pytest.fixture
def open_page(web: WebServer, login: Any, operator: Any) -> Iterator[Open]:
    """`open_page("/models/")` as an operator; errors of script or content policy fail the test."""
    with signed_in(web, login(operator)) as browser:
        yield browser


def type_over(page: Any, text: str) -> None:
    page.locator(".ace_text-input").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


class TestEditor:
    def test_a_mistake_is_marked_on_its_line_while_it_is_typed(
        self, echo: Path, open_page: Open
    ) -> None:
        page = open_page("/models/echo/config/")
        page.locator(".ace-conch").wait_for()

        type_over(page, CONFIG.replace("max_batch_size: 8", "max_batch_size: -1"))

        page.locator("#config-findings-list [data-severity=error][data-line='4']").wait_for()
        page.locator(".ace_gutter-cell.ace_error", has_text="4").wait_for()
        page.locator(".line--error").first.wait_for(state="attached")
        assert page.locator("#config-diff .diff-line--added").count() == 1
        assert page.locator("[data-part=status]").inner_text() == "Edited, not saved"

    def test_saving_with_errors_moves_the_focus_to_the_findings(
        self, echo: Path, open_page: Open
    ) -> None:
        page = open_page("/models/echo/config/")
        type_over(page, "nonsense: 1")
        page.locator("#config-findings-list [data-severity=error]").first.wait_for()

        page.get_by_role("button", name="Save and load").click()

        assert page.evaluate("document.activeElement.textContent") == "Findings"
        assert (echo / "config.pbtxt").read_text() == CONFIG

    def test_the_line_link_puts_the_cursor_there(self, echo: Path, open_page: Open) -> None:
        (echo / "config.pbtxt").write_text(CONFIG.replace("batch_size: 8", "batch_size: -8"))
        page = open_page("/models/echo/config/")
        page.locator(".ace-conch").wait_for()

        page.get_by_role("link", name="line 4").click()

        page.locator(".ace_gutter-active-line", has_text="4").wait_for()
        assert page.evaluate("document.activeElement.className").startswith("ace_text-input")

    def test_a_mended_text_is_saved(self, echo: Path, open_page: Open) -> None:
        page = open_page("/models/echo/config/")
        mended = CONFIG.replace("max_batch_size: 8", "max_batch_size: 4")
        type_over(page, mended)
        page.locator("#config-diff .diff-line--added").wait_for()

        page.get_by_role("button", name="Save", exact=True).click()

        page.get_by_text("Saved as revision").wait_for()
        assert (echo / "config.pbtxt").read_text() == mended

    def test_without_script_the_textarea_is_the_editor(
        self, echo: Path, login: Any, operator: Any
    ) -> None:
        text = login(operator).get("/models/echo/config/").content.decode()

        assert '<textarea id="config-text" name="text"' in text
        assert config_sha256(CONFIG) in text


def test_bulk_unload_names_models_and_consequence(
    repository: Path, served: FakeWorkerClient, open_page: Open
) -> None:
    add_model(repository, "other")
    page = open_page("/models/")
    page.get_by_label("Choose all models in the list").check()
    page.get_by_role("button", name="Unload…").click()

    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading").inner_text() == "Unload 2 models?"
    assert "echo, other" in dialog.inner_text()
    assert "Requests to them will fail" in dialog.inner_text()

    dialog.get_by_role("button", name="Unload 2 models").click()
    page.get_by_text("Unloading 2 models was asked for.").wait_for()
    assert Deployment.objects.count() == 2


def test_a_choice_outlives_the_fresh_list_that_was_on_its_way(
    repository: Path, served: FakeWorkerClient, open_page: Open
) -> None:
    page = open_page("/models/")
    held: list[Any] = []
    page.route("**/models/", lambda route: held.append(route))
    page.evaluate("""() => {
        const mark = () => document.body.setAttribute("data-answered", "");
        document.addEventListener("htmx:afterRequest", mark);
    }""")
    with page.expect_request("**/models/"):
        pass
    page.get_by_label("Choose echo").check()

    [fresh] = held
    fresh.continue_()
    page.locator("body[data-answered]").wait_for()

    assert page.get_by_label("Choose echo").is_checked()


def test_filtering_changes_the_list_and_the_address(
    repository: Path, served: FakeWorkerClient, open_page: Open
) -> None:
    add_model(repository, "other")
    page = open_page("/models/")

    page.get_by_label("Search by name").fill("oth")

    page.get_by_text("1 of 2 models").wait_for()
    page.wait_for_url("**/models/?q=oth*")


class TestTryIt:
    ANSWER = """{"model_name": "echo", "model_version": "2", "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}]}"""

    def test_sends_what_was_typed_and_shows_the_answer(
        self, served: FakeWorkerClient, open_page: Open
    ) -> None:
        page = open_page("/models/echo/try/")
        sent: list[Any] = []

        def answer(route: Any) -> None:
            sent.append(route.request)
            route.fulfill(status=200, body=self.ANSWER, content_type="application/json")

        page.route("**/v2/**", answer)
        page.get_by_label("Values of x").fill("[1.5, 2.5]")
        page.get_by_role("button", name="Send").click()

        page.get_by_text("200 OK").wait_for()
        page.get_by_role("cell", name="2.5").wait_for()
        assert sent[0].url.endswith("/v2/models/echo/infer")
        assert sent[0].post_data_json["inputs"] == [
            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}
        ]

    def test_a_request_can_be_taken_elsewhere_even_without_a_clipboard(
        self, served: FakeWorkerClient, open_page: Open
    ) -> None:
        page = open_page("/models/echo/try/")
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.route("**/v2/**", lambda route: route.fulfill(status=200, body=self.ANSWER))
        page.get_by_role("button", name="Send").click()

        page.get_by_role("button", name="Copy as curl").click()

        text = page.locator("[data-part=snippets] pre").inner_text()
        assert text.startswith("curl -sS 'http://localhost:")
        assert "YOUR_TOKEN" in text

    def test_a_wrong_value_is_not_sent_and_takes_the_focus(
        self, served: FakeWorkerClient, open_page: Open
    ) -> None:
        page = open_page("/models/echo/try/")
        page.get_by_label("Values of x").fill("[1.5]")
        page.get_by_role("button", name="Send").click()
        answer = page.locator("[data-part=answer]")
        assert "not sent" in answer.inner_text()

        summary = page.get_by_role("alert")
        assert "shape [1, 2] needs 2 elements, the data has 1" in summary.inner_text()
        summary.get_by_role("link").click()
        assert page.evaluate("document.activeElement.id") == "try-0-values"

    def test_a_refusal_of_the_server_is_shown_in_its_words(
        self, served: FakeWorkerClient, open_page: Open
    ) -> None:
        page = open_page("/models/echo/try/")
        page.route(
            "**/v2/**",
            lambda route: route.fulfill(status=503, body='{"error": "the queue is full"}'),
        )
        page.get_by_role("button", name="Send").click()

        page.get_by_text("the queue is full").wait_for()
        assert "503" in page.locator(".answer-line").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_breaks_the_accessibility_rules(
    echo: Path, served: FakeWorkerClient, open_page: Open, theme: str
) -> None:
    paths = ["", "echo/", "echo/versions/", "echo/config/", "echo/try/", "echo/history/"]
    found = {}
    for path in paths:
        page = open_page(f"/models/{path}", theme=theme)
        page.wait_for_load_state("networkidle")
        found[path] = violations(page)
        page.context.close()
    assert found == {path: [] for path in paths}


@pytest.mark.parametrize("path", ["", "echo/", "echo/versions/", "echo/config/", "echo/try/"])
def test_nothing_is_wider_than_a_phone(
    echo: Path, served: FakeWorkerClient, open_page: Open, path: str
) -> None:
    page = open_page(f"/models/{path}", width=390)
    page.wait_for_load_state("networkidle")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
