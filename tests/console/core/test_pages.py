"""Navigation, error pages, audit, health, and the content policy of every page."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from console.core import audit
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.web_server import WebServer
from tests.waiting import wait_until_blocking

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("who", "seen", "hidden"),
    [
        ("viewer", [b"Live metrics", b"API tokens"], [b">Users<", b">Audit<"]),
        ("admin", [b"Live metrics", b">Users<", b">Audit<"], []),
        ("stranger", [], [b"Live metrics", b">Users<"]),
    ],
)
def test_menu_shows_what_the_role_may_see(
    who: str, seen: list[bytes], hidden: list[bytes], request: Any, login: Any
) -> None:
    page = login(request.getfixturevalue(who)).get("/account/").content

    assert all(text in page for text in seen)
    assert not any(text in page for text in hidden)


def test_current_page_is_marked_in_the_menu(viewer: Any, login: Any) -> None:
    page = login(viewer).get("/workers/").content.decode()

    assert '<a href="/workers/" aria-current="page">' in page


def test_pages_forbid_inline_script_and_style(viewer: Any, login: Any) -> None:
    answer = login(viewer).get("/")

    policy = answer["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert b"<style" not in answer.content
    assert b" style=" not in answer.content
    assert b"<script>" not in answer.content


def test_unknown_page_says_so_and_shows_the_way_back(viewer: Any, login: Any) -> None:
    answer = login(viewer).get("/nothing/here/")

    assert answer.status_code == 404
    assert b"There is nothing under this address" in answer.content


def test_a_slash_too_many_at_the_rest_api_is_named(viewer: Any, login: Any) -> None:
    answer = login(viewer).get("/api/v1/models/")

    assert answer.status_code == 404
    assert "do not end with a slash" in answer.json()["error"]["message"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite here lives in memory")
def test_error_pages_leave_no_connection_behind(viewer: Any, login: Any, web: WebServer) -> None:
    name = settings.SESSION_COOKIE_NAME
    cookies = {name: login(viewer).cookies[name].value}
    with httpx.Client(base_url=web.address, cookies=cookies) as browser:
        assert browser.get("/nothing/here/").status_code == 404
        assert browser.get("/settings/audit/").status_code == 403

    def sessions() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname=current_database()")
            return int(cursor.fetchone()[0])

    wait_until_blocking(lambda: sessions() == 1, 10)


def test_unknown_page_works_for_anonymous_too(db: None) -> None:
    assert Client().get("/nothing/here/").status_code == 404


def test_too_little_right_names_the_role_that_is_needed(viewer: Any, login: Any) -> None:
    answer = login(viewer).get("/settings/audit/")

    assert answer.status_code == 403
    assert b"needs the role admin; your role is viewer" in answer.content


def test_deeds_of_people_are_found_in_the_audit_log_among_those_of_the_system(
    admin: Any, login: Any
) -> None:
    audit.record(admin, "load model", "cat")
    audit.record(None, "load model", "dog")
    client = login(admin)

    def targets(query: str) -> list[str]:
        page = client.get(f"/settings/audit/?q=load&who={query}").context["page"]
        return [entry.target for entry in page]

    assert targets("people") == ["cat"]
    assert targets("system") == ["dog"]
    assert targets("") == targets("nonsense") == ["dog", "cat"]


def test_a_refusal_is_one_line_in_the_log(
    viewer: Any, login: Any, caplog: pytest.LogCaptureFixture
) -> None:
    login(viewer).get("/settings/audit/")

    [record] = [item for item in caplog.records if item.name == "django.request"]
    assert record.exc_info is None
    assert "/settings/audit/" in record.getMessage()


def test_form_without_token_is_refused_in_words(viewer: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(viewer)

    answer = client.post("/account/theme/", {"theme": "dark"})

    assert answer.status_code == 403
    assert b"reload the page" in answer.content


def test_audit_shows_and_searches_entries(admin: Any, login: Any) -> None:
    audit.record(admin, "load model", "resnet50", {"versions": [3]})
    audit.record(None, "unload model", "bert")
    client = login(admin)

    page = client.get("/settings/audit/").content.decode()
    assert "resnet50" in page
    assert "system" in page

    found = client.get("/settings/audit/?q=resnet").content.decode()
    assert "bert" not in found


def test_audit_is_paged(admin: Any, login: Any) -> None:
    for index in range(60):
        audit.record(admin, "load model", f"model-{index:02}")
    client = login(admin)

    assert b"model-59" in client.get("/settings/audit/").content
    second = client.get("/settings/audit/?page=2&q=load").content
    assert b"model-00" in second
    assert b'href="?page=1&amp;q=load"' in second


def test_liveness_needs_nothing(db: None) -> None:
    assert Client().get("/healthz").status_code == 200


def test_readiness_names_what_is_away(fake_workers: FakeWorkerClient) -> None:
    assert Client().get("/readyz").json() == {"database": "ok", "redis": "ok"}

    fake_workers.error = ConnectionError("secret details")
    answer = Client().get("/readyz")

    assert answer.status_code == 503
    assert answer.json() == {"database": "ok", "redis": "unavailable"}


def test_metrics_count_workers_and_models(fake_workers: FakeWorkerClient) -> None:
    fake_workers.infos = [make_worker(models=[make_model("a"), make_model("b", state="LOADING")])]

    text = Client().get("/metrics").content.decode()

    assert 'conch_workers{state="ready"} 1' in text
    assert "conch_models_ready 1" in text
    assert "conch_registry_up 1" in text


def test_one_banner_says_that_redis_is_away(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    client = login(viewer)
    fake_workers.error = ConnectionError("Redis hangs")

    for path in ("/", "/models/", "/workers/", "/live/", "/deployments/"):
        page = client.get(path).content.decode()
        banner, _, rest = page.partition('<div class="page-header">')
        assert banner.count("cannot be read: Redis hangs") == 1, path

    fake_workers.error = None
    assert "cannot be read" not in client.get("/workers/").content.decode()
