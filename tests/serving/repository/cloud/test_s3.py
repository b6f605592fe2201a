"""Models out of S3, against moto's server over HTTP."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from serving.errors import InvalidArgumentError, ModelLoadError, ServingError, UnavailableError
from serving.options import CloudOptions, ControlMode
from tests.ports import free_ports
from tests.serving.model_files import IDENTITY, identity_request, write_identity
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


class Bucket:
    def __init__(self, client: Any, endpoint: str) -> None:
        self.name = f"models-{uuid.uuid4().hex[:8]}"
        self.acl = "private"
        self._client = client
        self._client.create_bucket(Bucket=self.name)
        self.url = f"s3://{endpoint}/{self.name}"

    def write(self, key: str, content: bytes | str = b"") -> None:
        body = content.encode() if isinstance(content, str) else content
        self._client.put_object(Bucket=self.name, Key=key, Body=body, ACL=self.acl)

    def remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=key)

    def write_identity(self, name: str, *versions: int, extra: str = "") -> None:
        self.write(f"{name}/config.pbtxt", IDENTITY + extra)
        for version in versions or (1,):
            self.write(f"{name}/{version}/weights.bin", f"{name} {version}")


@pytest.fixture
def bucket(s3_client: Any, moto_endpoint: str, keys: None) -> Bucket:
    return Bucket(s3_client, moto_endpoint)


def blobs(tmp_path: Path) -> list[str]:
    return sorted(path.read_text() for path in (tmp_path / "cache/blobs").glob("*/*"))


def sessions(tmp_path: Path) -> list[str]:
    root = tmp_path / "cache" / "sessions"
    return sorted(str(path.relative_to(root)) for path in root.glob("*/*/*"))


async def test_models_load_answer_and_unload(make, bucket, tmp_path):
    bucket.write_identity("a", 1, 2)
    bucket.write_identity("b")
    server = make(bucket.url)
    await server.start()
    assert rows(server.repository_index()) == ["a:", "b:"]

    await server.load_model("a")

    assert rows(server.repository_index()) == ["a:2 READY", "b:"]
    response = await server.infer_async(identity_request("a", value=3.0))
    assert response.outputs[0].array.tolist() == [[3.0] * 4]
    assert blobs(tmp_path) == ["a 2", IDENTITY], "only the version that is served came"
    assert len(sessions(tmp_path)) == 1

    await server.unload_model("a")
    await server.settled()

    assert sessions(tmp_path) == []
    assert len(blobs(tmp_path)) == 2, "the cache keeps what may be loaded again"


async def test_a_path_in_the_bucket_is_a_repository_of_its_own(make, bucket):
    bucket.write_identity("team/models/a")
    bucket.write_identity("other")
    server = make(f"{bucket.url}/team/models", model_control_mode=ControlMode.NONE)
    await server.start()
    assert rows(server.repository_index()) == ["a:1 READY"]


async def test_a_directory_that_only_a_placeholder_stands_for_is_a_version(make, bucket):
    bucket.write("a/config.pbtxt", IDENTITY)
    bucket.write("a/7/")
    server = make(bucket.url)
    await server.start()
    await server.load_model("a")
    assert rows(server.repository_index()) == ["a:7 READY"]


async def test_load_is_idempotent_and_a_change_is_loaded(make, bucket):
    bucket.write_identity("a")
    server = make(bucket.url, load_models=("a",))
    await server.start()
    first = server.model("a")
    await server.load_model("a")
    assert server.model("a") is first

    bucket.write("a/1/weights.bin", "other weights")
    await server.load_model("a")

    assert server.model("a") is not first


async def test_override_of_the_config_holds_until_the_next_plain_load(make, bucket):
    bucket.write_identity("a")
    server = make(bucket.url, load_models=("a",))
    await server.start()
    config = {
        "backend": "identity",
        "max_batch_size": 2,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    await server.load_model("a", config_override=json.dumps(config))
    assert server.model_config("a").max_batch_size == 2
    await server.load_model("a")
    assert server.model_config("a").max_batch_size == 8


async def test_versions_that_stay_keep_their_files(make, bucket, tmp_path):
    bucket.write_identity("a", 1, extra="version_policy { all {} }")
    server = make(bucket.url, load_models=("a",))
    await server.start()
    first = server.model("a", 1)
    bucket.write("a/2/weights.bin", "a 2")
    await server.load_model("a")
    await server.settled()

    assert server.model("a", 1) is first
    kept, added = sorted(sessions(tmp_path))
    root = tmp_path / "cache/sessions"
    assert (root / kept / "1/weights.bin").read_text() == "a 1"
    assert (root / added / "2/weights.bin").read_text() == "a 2"
    await server.unload_model("a")
    await server.settled()
    assert sessions(tmp_path) == []


async def test_an_update_in_place_keeps_the_files_of_what_serves(make, bucket, tmp_path):
    bucket.write_identity("a")
    server = make(bucket.url, load_models=("a",))
    await server.start()
    first = server.model("a")
    for count in (2, 3):
        bucket.write("a/config.pbtxt", IDENTITY + f"instance_group {{ count: {count} }}")
        await server.load_model("a")
        await server.settled()
    assert server.model("a") is first
    assert first.instance_count == 3
    root = tmp_path / "cache/sessions"
    assert [(root / place / "1/weights.bin").read_text() for place in sessions(tmp_path)] == [
        "a 1"
    ] * 3
    await server.unload_model("a")
    await server.settled()
    assert sessions(tmp_path) == []


async def test_a_failed_reload_leaves_the_old_model_serving(make, bucket):
    bucket.write_identity("a")
    server = make(bucket.url, load_models=("a",))
    await server.start()
    bucket.write("a/config.pbtxt", "max_batch_size: oops")
    with pytest.raises(ModelLoadError, match="config.pbtxt"):
        await server.load_model("a")
    assert rows(server.repository_index()) == ["a:1 READY"]


async def test_poll_follows_the_times_of_objects(make, bucket, monkeypatch):
    bucket.write_identity("a")
    server = make(
        bucket.url, model_control_mode=ControlMode.POLL, repository_poll_secs=1, exit_on_error=False
    )
    await server.start()
    first = server.model("a")
    bucket.write("a/1/weights.bin", "new")
    bucket.write_identity("b")
    await wait_until(lambda: "b:1 READY" in rows(server.repository_index()), 10)
    await wait_until(lambda: server.model("a") is not first, 10)
    bucket.remove("b/config.pbtxt")
    bucket.remove("b/1/weights.bin")
    await wait_until(lambda: rows(server.repository_index()) == ["a:1 READY"], 10)


async def test_download_is_seen_by_state_listeners(make, bucket):
    bucket.write_identity("a")
    server = make(bucket.url)
    seen: list[str] = []
    server.add_state_listener(lambda entry: seen.extend(rows([entry])))
    await server.start()
    await server.load_model("a")
    assert seen[0] == "a: LOADING downloading"
    size = len(IDENTITY) + len("a 1")
    assert (
        f"a: LOADING downloading from {bucket.url}/a: {size} bytes of {size} bytes, 100 %" in seen
    )
    assert seen[-1] == "a:1 READY"


async def test_a_local_and_a_cloud_copy_are_a_duplicate(make, bucket, tmp_path):
    local = tmp_path / "local"
    local.mkdir()
    write_identity(local, "a")
    write_identity(local, "b")
    bucket.write_identity("a")
    server = make(local, bucket.url, exit_on_error=False)
    await server.start()
    with pytest.raises(InvalidArgumentError, match="appears in two or more repositories"):
        await server.load_model("a")
    await server.load_model("b")
    assert "b:1 READY" in rows(server.repository_index())


# What goes wrong


async def start_error(server: Any) -> str:
    with pytest.raises(ServingError) as caught:
        await server.start()
    return caught.value.message


async def test_a_bucket_that_is_not_there_is_named(make, moto_endpoint, keys):
    told = await start_error(make(f"s3://{moto_endpoint}/no-such-bucket"))
    assert "no bucket 'no-such-bucket'" in told
    assert "correct the URL" in told


async def test_an_empty_path_is_named_and_an_empty_bucket_is_fine(make, bucket):
    told = await start_error(make(f"{bucket.url}/typo"))
    assert "nothing lies below 'typo/'" in told
    server = make(bucket.url)
    await server.start()
    assert server.repository_index() == []


async def test_a_model_that_is_not_there_is_named(make, bucket):
    server = make(bucket.url)
    await server.start()
    with pytest.raises(InvalidArgumentError, match=f"no directory 'nope' in {bucket.url}"):
        await server.load_model("nope")


async def test_a_wrong_endpoint_is_told_in_time_and_others_load(make, keys, tmp_path):
    url = f"s3://127.0.0.1:{free_ports(1)[0]}/models"
    told = await start_error(make(url))
    assert f"the store at http://{url[5:-7]} cannot be reached" in told
    assert "check the network, the host and the port" in told

    write_identity(tmp_path, "a")
    server = make(tmp_path, url, exit_on_error=False)
    await server.start()
    await server.load_model("a")
    assert "a:1 READY" in rows(server.repository_index())
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await server.load_model("b")


async def test_the_entry_of_the_credential_file_is_used(
    make, moto_endpoint, bucket, tmp_path, monkeypatch
):
    bucket.write_identity("a")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    path = tmp_path / "credentials.json"
    entry = {"key_id": "k", "secret_key": "s", "region": "us-east-1"}
    path.write_text(json.dumps({"s3": {bucket.url: entry}}))
    cloud = CloudOptions(path, tmp_path / "cache", timeout_secs=5)
    server = make(bucket.url, cloud=cloud)
    await server.start()
    await server.load_model("a")
    assert server.is_model_ready("a")


async def test_a_public_bucket_needs_no_credentials_and_a_private_object_does(
    make, moto_endpoint, bucket, monkeypatch
):
    bucket.acl = "public-read"
    bucket.write_identity("a")
    bucket.acl = "private"
    bucket.write_identity("b")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    server = make(bucket.url)
    await server.start()
    await server.load_model("a")
    assert server.is_model_ready("a")
    with pytest.raises(ModelLoadError, match="was refused: .*; set AWS_ACCESS_KEY_ID and"):
        await server.load_model("b")
    await server.unload_model("a")
    await server.load_model("a")
