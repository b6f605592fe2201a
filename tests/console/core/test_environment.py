"""Reading of settings from the environment, static files by package."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from console import environment
from workers.settings import broker_url


def test_words_of_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, value in (("true", True), ("1", True), ("ON", True), ("no", False), ("", False)):
        monkeypatch.setenv("CONCH_X", text)
        assert environment.env_bool("CONCH_X", not value) is value


@pytest.mark.parametrize(
    ("read", "text"), [(environment.env_bool, "perhaps"), (environment.env_int, "many")]
)
def test_bad_value_stops_the_start_with_its_name(
    monkeypatch: pytest.MonkeyPatch, read: Any, text: str
) -> None:
    monkeypatch.setenv("CONCH_X", text)
    with pytest.raises(ImproperlyConfigured, match=f"CONCH_X is '{text}'"):
        read("CONCH_X", 1)


def test_number_below_the_least_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCH_X", "0")
    with pytest.raises(ImproperlyConfigured, match="least allowed is 1"):
        environment.env_int("CONCH_X", 5, minimum=1)


def test_secret_comes_from_a_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    monkeypatch.setenv("CONCH_X_FILE", str(tmp_path / "secret"))
    assert environment.env_secret("CONCH_X") == "hush"

    monkeypatch.setenv("CONCH_X_FILE", str(tmp_path / "missing"))
    with pytest.raises(ImproperlyConfigured, match="CONCH_X_FILE cannot be read"):
        environment.env_secret("CONCH_X")


def test_kept_secret_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret_key"

    first = environment.kept_secret(path)

    assert len(first) > 40
    assert environment.kept_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("redis_url", "broker"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock"),
        ("unix:///run/redis.sock?db=2", "redis+socket:///run/redis.sock?virtual_host=2"),
    ],
)
def test_celery_spells_a_socket_its_own_way(redis_url: str, broker: str) -> None:
    assert broker_url(redis_url) == broker


def test_plotly_is_found_inside_its_package() -> None:
    found = finders.find("vendor/plotly.min.js")

    assert found
    assert Path(found).stat().st_size > 1_000_000


def test_every_static_file_can_be_collected_with_hashes(settings: Any, tmp_path: Path) -> None:
    """Also checks that imports between our modules and @import of our sheets lead somewhere."""
    settings.STATIC_ROOT = tmp_path
    backend = "console.core.storage.ModuleManifestStorage"
    settings.STORAGES = settings.STORAGES | {"staticfiles": {"BACKEND": backend}}
    settings.STATICFILES_FINDERS = [
        "django.contrib.staticfiles.finders.FileSystemFinder",
        "console.core.finders.PackageFilesFinder",
    ]

    call_command("collectstatic", interactive=False, verbosity=0)

    main = next((tmp_path / "js" / "behaviors").glob("live-chart.*.js")).read_text()
    assert 'from "../charts.' in main
    assert 'from "../charts.js"' not in main
    sheet = next((tmp_path / "css").glob("console.*.css")).read_text()
    assert 'url("tokens.css")' not in sheet
