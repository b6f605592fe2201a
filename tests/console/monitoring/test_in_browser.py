"""Pages of the console's ground in a real Chromium: live socket, themes, phone width, axe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from channels.layers import get_channel_layer

from console.monitoring.relay import GROUP
from tests.console.chromium import signed_in, violations
from tests.console.conftest import PASSWORD
from tests.console.fakes import (
    FakeWorkerClient,
    make_device,
    make_model,
    make_model_sample,
    make_sample,
    make_worker,
)
from tests.console.web_server import WebServer
from tests.page import until_bound
from tests.waiting import wait_until_blocking
from workers.messages import Event

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PAGES = [
    "/",
    "/live/",
    "/workers/",
    "/workers/gpu-1/",
    "/account/",
    "/settings/users/",
    "/settings/tokens/",
    "/settings/audit/",
    "/nothing/here/",
]

Open = Callable[..., Any]


@pytest.fixture
def fleet(fake_workers: FakeWorkerClient) -> FakeWorkerClient:
    failed = make_model("resnet", "3", "UNAVAILABLE", reason="engine built for compute 8.6")
    loading = make_model("whisper", "4", "LOADING")
    device = make_device()
    fake_workers.infos = [
        make_worker("gpu-1", models=[make_model("bert", "2"), failed, loading], devices=[device]),
        make_worker("edge", state="lost", last_seen=time.time() - 840),
    ]
    now = time.time()
    fake_workers.sample_list = [
        make_sample("gpu-1", now - age, [make_model_sample("bert", "2")], devices=[device])
        for age in range(120, 0, -1)
    ]
    fake_workers.event_list = [Event("gpu-1", now - 60, "model_state", "bert", "2", "READY")]
    return fake_workers


@pytest.fixture
def open_page(fleet: FakeWorkerClient, web: WebServer, admin: Any, login: Any) -> Iterator[Open]:
    """`open_page("/live/")` as an admin; errors of script or content policy fail the test."""
    layer().groups.clear()
    with signed_in(web, login(admin)) as browser:
        yield browser


def layer() -> Any:
    return get_channel_layer()


def wait_for_socket() -> None:
    """Until what is announced now reaches the page."""
    wait_until_blocking(lambda: layer().groups.get(GROUP), 10)


def overflow(page: Any) -> int:
    script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(script))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_a_phone(open_page: Open, theme: str) -> None:
    for path in PAGES:
        page = open_page(path, theme=theme)
        if path in ("/", "/live/"):
            page.locator(".main-svg").first.wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert violations(page) == [], f"{path} {theme}"
        # Open pages go on asking: eighteen of them would keep a busy machine from the next one.
        page.context.close()

        narrow = open_page(path, theme=theme, width=390)
        assert overflow(narrow) == 0, path
        narrow.context.close()


def test_charts_and_numbers_are_there_before_anything_is_live(open_page: Open) -> None:
    page = open_page("/")

    page.get_by_text("inferences 200 /s").wait_for()
    page.get_by_text("p99 8.64 ms").wait_for()
    page.locator("[data-chart=latency]").get_by_text("Show as table").click()
    page.locator("[data-chart=latency] tbody tr").first.wait_for()


def test_sample_reaches_the_page_through_the_socket(
    open_page: Open, web: WebServer, fleet: FakeWorkerClient
) -> None:
    page = open_page("/workers/")

    wait_for_socket()
    web.call(fleet.announce, make_sample("gpu-1"))

    page.get_by_text("Live · updated").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused").wait_for()
    page.get_by_role("button", name="Resume").click()
    web.call(fleet.announce, make_sample("gpu-1"))
    page.get_by_text("Live · updated").wait_for()


def test_silence_is_shown_as_stale(
    open_page: Open, web: WebServer, fleet: FakeWorkerClient
) -> None:
    page = open_page("/workers/")
    wait_for_socket()
    web.call(fleet.announce, make_sample("gpu-1"))
    page.get_by_text("Live · updated").wait_for()

    page.get_by_text("Stale since").wait_for()


def test_event_brings_the_new_state_at_once(
    open_page: Open, web: WebServer, fleet: FakeWorkerClient
) -> None:
    page = open_page("/")
    page.get_by_text("engine built for compute 8.6").wait_for()
    wait_for_socket()
    # Without its timers the page asks again for one reason alone.
    page.evaluate("() => { for (let id = setTimeout(() => {}); id; id -= 1) clearTimeout(id); }")
    fleet.infos = [make_worker("gpu-1", models=[make_model("bert", "2")])]

    web.call(fleet.announce, Event("gpu-1", time.time(), "model_state", "resnet", "3", "READY"))

    page.get_by_text("All models that should serve are serving").wait_for()
    assert page.title() == "Overview · Conch"


def test_menu_of_a_narrow_screen_opens_and_closes(open_page: Open) -> None:
    page = open_page("/account/", width=390)
    link = page.get_by_role("link", name="Live metrics")
    assert not link.is_visible()

    page.get_by_role("button", name="Menu").click()
    assert link.is_visible()

    page.keyboard.press("Escape")
    assert not link.is_visible()


def test_theme_chosen_in_the_account_wins_over_the_system(open_page: Open) -> None:
    page = open_page("/account/", theme="light")

    page.get_by_label("Dark").check()

    # Not wait_for_function: it asks again by eval, which the content policy forbids.
    page.locator("html[data-theme=dark]").wait_for()


def test_person_logs_in_and_out(web: WebServer, open_page: Open) -> None:
    page = open_page("/account/")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    page.get_by_role("heading", name="Overview").wait_for()
    until_bound(page)
    assert violations(page) == []
