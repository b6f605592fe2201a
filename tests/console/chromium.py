"""Chromium beside the test's own thread, and the database connections that come with it.

Playwright's sync half runs an event loop in the test's thread. Django gives code beside a loop
connections of its own, which nobody but us would close.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.db import connections
from django.test import Client

from tests.console.web_server import WebServer
from tests.page import visit


def chromium_path() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed")
    return path


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; within, a test may use the ORM as always."""
    from playwright.sync_api import sync_playwright

    # The ORM would refuse to work beside the loop, which never runs while the test does.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium_path(), args=["--no-sandbox"]
            )
            try:
                yield browser
            finally:
                browser.close()
                connections.close_all()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


class SignedIn:
    """`browser("/models/")`: that page, for a person who is logged in already."""

    def __init__(self, browser: Any, address: str, cookie: dict[str, str]) -> None:
        self._browser = browser
        self._address = address
        self._cookie = {**cookie, "url": address}
        self.problems: list[str] = []
        """Errors of scripts and of the content policy."""

    def __call__(self, path: str, *, theme: str = "light", width: int = 1280) -> Any:
        context = self._browser.new_context(
            color_scheme=theme, viewport={"width": width, "height": 900}
        )
        context.add_cookies([self._cookie])
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.note = self._note
        page.on("console", self._note)
        visit(page, self._address + path)
        return page

    def _note(self, message: Any) -> None:
        # A refusal is a page or a sentence of its own; Chromium reports its status as an error.
        if message.type == "error" and "status of" not in message.text:
            self.problems.append(message.text)


def violations(page: Any) -> list[tuple[str, list[str]]]:
    """What axe finds: rule and elements."""
    # Its own inline styles are stopped by our policy and count for nothing.
    page.remove_listener("console", page.note)
    found = Axe().run(page).response["violations"]
    return [(item["id"], [node["html"][:120] for node in item["nodes"]]) for item in found]


@contextmanager
def signed_in(web: WebServer, client: Client) -> Iterator[SignedIn]:
    """Chromium with the session of a test client; what its pages complain of fails the test."""
    name = settings.SESSION_COOKIE_NAME
    with chromium() as browser:
        pages = SignedIn(browser, web.address, {"name": name, "value": client.cookies[name].value})
        yield pages
    assert pages.problems == [], pages.problems
