"""Cloud repositories on the command line and in the environment; where the cache lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.cli import CommandLineError, parse
from serving.errors import InvalidArgumentError
from serving.options import CloudOptions
from serving.repository.cloud.repositories import CloudRepositories
from tests.serving.repository.cloud.conftest import error_of
from workers.settings import SettingsError, load_settings


def test_command_line():
    line = parse(
        [
            "--model-repository=/models",
            "--model-repository=s3://https://host:9000/bucket/models/",
            "--cloud-credential=/run/credentials.json",
            "--cloud-cache-directory=/var/cache/models",
            "--cloud-cache-byte-size=1000",
            "--cloud-timeout-secs=7",
        ]
    )
    assert line is not None
    assert line.server.model_repositories == (
        Path("/models"),
        "s3://https://host:9000/bucket/models",
    )
    assert line.server.cloud == CloudOptions(
        Path("/run/credentials.json"), Path("/var/cache/models"), 1000, 7
    )


def test_a_wrong_url_is_refused_with_the_form_that_is_right():
    with pytest.raises(CommandLineError, match=r"it names no bucket; write gs://bucket/path"):
        parse(["--model-repository=gs://"])
    with pytest.raises(SettingsError, match="CONCH_MODEL_REPOSITORY: .*scheme that is not known"):
        load_settings({"CONCH_MODEL_REPOSITORY": "ftp://host/models"})


def test_environment_of_a_worker():
    server = load_settings(
        {
            "CONCH_MODEL_REPOSITORY": "/models:s3://host:9000/bucket:gs://bucket2/x",
            "CONCH_CLOUD_CACHE_DIRECTORY": "/cache",
            "CONCH_CLOUD_CACHE_BYTES": "100000000000",
            "CONCH_CLOUD_TIMEOUT": "5",
        }
    ).server
    assert server.model_repositories == (
        Path("/models"),
        "s3://host:9000/bucket",
        "gs://bucket2/x",
    )
    assert server.cloud == CloudOptions(None, Path("/cache"), 100_000_000_000, 5)


def cache_directory(
    url: str, environment: dict[str, str], options: CloudOptions | None = None
) -> Path:
    repositories = CloudRepositories(
        options or CloudOptions(), read_config=lambda *args: None, environment=environment
    )
    cache, _ = repositories._cache(repositories.root(url).url)
    repositories.close()
    return cache.directory


def test_the_cache_lives_in_the_users_unless_told_otherwise(tmp_path, monkeypatch):
    home = tmp_path / "home"
    assert cache_directory("s3://bucket", {}) == home / ".cache" / "conch" / "models"
    xdg = {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    assert cache_directory("s3://bucket", xdg) == tmp_path / "xdg" / "conch" / "models"
    told = CloudOptions(cache_directory=tmp_path / "told")
    assert cache_directory("s3://bucket", xdg, told) == tmp_path / "told"


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://bucket", "TRITON_AWS_MOUNT_DIRECTORY"),
        ("gs://bucket", "TRITON_GCS_MOUNT_DIRECTORY"),
        ("as://account1/container", "TRITON_AZURE_MOUNT_DIRECTORY"),
    ],
)
def test_mount_variables_choose_the_place_of_a_store(tmp_path, url, variable):
    mount = tmp_path / "mount"
    environment = {variable: str(mount)}
    assert "which is no directory; create it" in error_of(lambda: cache_directory(url, environment))
    mount.mkdir()
    assert cache_directory(url, environment) == mount
    assert cache_directory(url, environment) == mount, "our own cache does not count as filling it"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="is not empty; name a directory for this alone"):
        cache_directory(url, {variable: str(tmp_path / "other")})
