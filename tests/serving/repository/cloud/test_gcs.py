"""Models out of Google Cloud Storage, against gcp-storage-emulator over HTTP."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from serving.errors import ServingError
from serving.options import ControlMode
from tests.serving.model_files import IDENTITY, identity_request
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def emulator() -> Iterator[Any]:
    from gcp_storage_emulator.server import create_server

    with contextlib.redirect_stdout(io.StringIO()):
        server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="models")
        server.start()
        yield server
        server.stop()


@pytest.fixture
def bucket(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    import gcsfs

    host, port = emulator._api._httpd.server_address
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
    emulator.wipe()
    filesystem = gcsfs.GCSFileSystem(
        token="anon",
        endpoint_url=f"http://{host}:{port}",
        project="conch",
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    filesystem.mkdir("models")
    return filesystem


def write_identity(bucket: Any, name: str, content: bytes = b"weights") -> None:
    bucket.pipe(f"models/team/{name}/config.pbtxt", IDENTITY.encode())
    bucket.pipe(f"models/team/{name}/1/weights.bin", content)


async def test_models_load_answer_and_follow_changes(make, bucket, tmp_path):
    write_identity(bucket, "a")
    server = make(
        "gs://models/team",
        model_control_mode=ControlMode.POLL,
        repository_poll_secs=1,
    )
    await server.start()

    assert rows(server.repository_index()) == ["a:1 READY"]
    response = await server.infer_async(identity_request("a", value=2.0))
    assert response.outputs[0].array.tolist() == [[2.0] * 4]
    first = server.model("a")
    write_identity(bucket, "a", b"other weights")
    await wait_until(lambda: server.model("a") is not first, 10)
    blobs = (tmp_path / "cache/blobs").glob("*/*")
    assert sorted(path.read_bytes() for path in blobs) == [
        IDENTITY.encode(),
        b"other weights",
        b"weights",
    ]


async def test_large_files_come_in_ranges(make, bucket, monkeypatch):
    monkeypatch.setattr("serving.repository.cloud.download._RANGE_BYTES", 1000)
    write_identity(bucket, "a", bytes(range(256)) * 40)
    server = make("gs://models/team")
    await server.start()
    await server.load_model("a")
    source = server.model("a")
    assert source.is_ready


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("gs://no-such-bucket/team", "no bucket 'no-such-bucket'"),
        ("gs://models/typo", "nothing lies below 'typo/'"),
    ],
)
async def test_what_is_not_there_is_named(make, bucket, url, told):
    with pytest.raises(ServingError) as caught:
        await make(url).start()
    assert told in caught.value.message


async def test_a_key_file_that_is_no_key_is_told(make, bucket, tmp_path, monkeypatch):
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "service_account", "client_email": "x"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    with pytest.raises(ServingError) as caught:
        await make("gs://models/team").start()
    assert "model repository 'gs://models/team'" in caught.value.message
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.message
