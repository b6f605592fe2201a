"""A store that takes the connection and never answers is told of within the deadline."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from serving.errors import UnavailableError
from serving.repository.cloud.credentials import Credentials
from serving.repository.cloud.store import ObjectStore, RemoteFile
from serving.repository.cloud.url import parse


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(params=["s3", "gs", "as"])
def url(request: pytest.FixtureRequest, silent: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{silent}")
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        "DefaultEndpointsProtocol=http;AccountName=account1;AccountKey=Zm9vYmFy;"
        f"BlobEndpoint=http://{silent}/account1;",
    )
    return {
        "s3": f"s3://{silent}/bucket/models",
        "gs": "gs://bucket/models",
        "as": "as://account1/container/models",
    }[request.param]


def test_a_read_of_a_silent_store_can_be_given_up(url: str) -> None:
    store = ObjectStore(parse(url), Credentials(), timeout_s=60)
    file = RemoteFile("model", f"{store.url.key}/model", 10)
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="given up"):
        store.read(file, [(0, 10)], stop)
    assert time.monotonic() - started < 8
    timer.join()


def test_a_silent_store_is_told_in_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.repository.cloud.store._LIST_FACTOR", 1)
    store = ObjectStore(parse(url), Credentials(), timeout_s=0.5)
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="does not answer within 0.5 s"):
        store.names()
    assert time.monotonic() - started < 8
