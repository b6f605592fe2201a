"""Stores for tests: a bucket in memory with faults at will, and real servers of this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.errors import ServingError
from serving.options import CloudOptions, ControlMode, ServerOptions
from serving.repository.cloud import url as cloud_url
from serving.repository.cloud.credentials import Credentials
from serving.repository.cloud.store import ObjectStore
from serving.server import ModelServer
from tests.serving.repository.cloud.fakes import FakeBucket

CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "TRITON_", "STORAGE_EMULATOR_", "GCSFS_", "XDG_")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's own credentials, and no question to a metadata server."""
    import os

    for name in list(os.environ):
        if name.startswith(CLOUD_VARIABLES):
            monkeypatch.delenv(name)
    monkeypatch.setattr("serving.repository.cloud.store._PAUSES_S", (0.01, 0.02))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.fixture
def bucket() -> FakeBucket:
    return FakeBucket()


@pytest.fixture
def store(bucket: FakeBucket) -> ObjectStore:
    url = cloud_url.parse("s3://bucket/models")
    return ObjectStore(url, Credentials(), timeout_s=5, opener=lambda *args: bucket)


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def s3_client(moto_endpoint: str) -> Iterator[Any]:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://{moto_endpoint}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    yield client
    client.close()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., ModelServer]]:
    servers: list[ModelServer] = []

    def make_server(*roots: Any, **options: Any) -> ModelServer:
        options.setdefault("model_control_mode", ControlMode.EXPLICIT)
        options.setdefault("exit_timeout_secs", 5)
        options.setdefault(
            "cloud", CloudOptions(cache_directory=tmp_path / "cache", timeout_secs=5)
        )
        servers.append(ModelServer(ServerOptions(roots, **options)))
        return servers[-1]

    yield make_server
    for server in servers:
        await server.stop()


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(ServingError) as caught:
        work()
    return caught.value.message
