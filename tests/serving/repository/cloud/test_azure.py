"""Azure: what the library is told; and against azurite, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.errors import InvalidArgumentError, ServingError
from serving.repository.cloud.filesystem import open_filesystem
from serving.repository.cloud.url import parse
from tests.ports import free_ports
from tests.serving.model_files import IDENTITY
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until_blocking

URL = parse("as://account1/models/team")
KEY = "Zm9vYmFy"
_AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def test_a_key_opens_the_account_of_the_url():
    filesystem = open_filesystem(URL, {"account_key": KEY}, 5)
    assert (filesystem.account_name, filesystem.account_key) == ("account1", KEY)
    assert filesystem.account_url == "https://account1.blob.core.windows.net"


def test_without_credentials_the_container_counts_as_public():
    filesystem = open_filesystem(URL, {}, 5)
    assert filesystem.anon
    assert filesystem.credential is None


def test_identities_are_those_of_the_auth_type():
    managed = open_filesystem(URL, {"auth_type": "managed_identity", "client_id": "c"}, 5)
    default = open_filesystem(URL, {"auth_type": "default"}, 5)
    assert type(managed.credential).__name__ == "ManagedIdentityCredential"
    assert type(default.credential).__name__ == "DefaultAzureCredential"
    with pytest.raises(InvalidArgumentError, match="write managed_identity or default"):
        open_filesystem(URL, {"auth_type": "password"}, 5)


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A connection string."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed (npm install --global azurite)")
    (port,) = free_ports(1)
    flags = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    process = subprocess.Popen(
        [program, "--blobPort", str(port), *flags], cwd=tmp_path_factory.mktemp("azurite")
    )
    yield (
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
        f"AccountKey={_AZURITE_KEY};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )
    process.terminate()
    process.wait(10)


@pytest.fixture
def container(azurite: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite)
    from azure.core.exceptions import ServiceRequestError
    from azure.storage.blob import BlobServiceClient

    client = BlobServiceClient.from_connection_string(azurite, retry_total=0)

    def answers() -> bool:
        try:
            client.create_container("models")
        except ServiceRequestError:
            return False
        return True

    wait_until_blocking(answers, 20)
    yield client.get_container_client("models")
    client.delete_container("models")
    client.close()


async def test_models_load_out_of_a_container(make, container, tmp_path: Path):
    container.upload_blob("team/a/config.pbtxt", IDENTITY)
    container.upload_blob("team/a/1/weights.bin", b"weights")
    server = make("as://devstoreaccount1/models/team")
    await server.start()
    await server.load_model("a")
    assert rows(server.repository_index()) == ["a:1 READY"]
    blobs = (tmp_path / "cache/blobs").glob("*/*")
    assert sorted(path.read_bytes() for path in blobs) == [IDENTITY.encode(), b"weights"]
    with pytest.raises(ServingError, match="nothing lies below 'typo/'"):
        await make("as://devstoreaccount1/models/typo").start()
