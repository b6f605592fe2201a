from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from serving.errors import UnavailableError
from serving.repository.cloud import download as download_module
from serving.repository.cloud.cache import BlobCache
from serving.repository.cloud.download import Download, Progress
from tests.serving.repository.cloud.conftest import error_of


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "_RANGE_BYTES", 10)
    monkeypatch.setattr(download_module, "_RANGES_AT_ONCE", 2)
    monkeypatch.setattr(download_module, "_TELL_EVERY_S", 0)


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(tmp_path / "cache", 10_000)


@pytest.fixture
def bring(store, cache):
    """Downloads all of the bucket; returns what came, by path."""

    def run(on_progress=lambda progress: None, cache=cache, stop=None) -> dict[str, bytes]:
        placed: dict[str, bytes] = {}
        download = Download(store, cache, str(store.url), stop or threading.Event(), on_progress)
        files = store.files(store.url)
        download.run(files, lambda file, blob: placed.update({file.path: blob.read_bytes()}))
        return placed

    return run


WEIGHTS = bytes(range(95))


def test_files_come_whole_and_the_second_time_out_of_the_cache(bucket, bring):
    bucket.write("a/1/weights", WEIGHTS)
    bucket.write("a/config.pbtxt", "config")
    assert bring() == {"a/1/weights": WEIGHTS, "a/config.pbtxt": b"config"}
    assert bucket.bytes_read == 101
    assert bring()["a/1/weights"] == WEIGHTS
    assert bucket.bytes_read == 101


def test_equal_files_of_versions_and_models_come_once(bucket, bring):
    bucket.write("a/1/weights", WEIGHTS)
    bring()
    bucket.write("a/2/weights", WEIGHTS)
    bucket.write("b/1/weights", WEIGHTS)
    assert len(bring()) == 3
    assert bucket.bytes_read == len(WEIGHTS)


@pytest.mark.parametrize("has_md5", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(bucket, bring, has_md5):
    bucket.has_md5 = has_md5
    bucket.write("a/1/weights", WEIGHTS)

    def break_off(key: str, start: int) -> None:
        if start >= 60:
            raise ConnectionResetError("Connection reset by peer")

    bucket.before_read = break_off
    message = error_of(bring)
    assert "reading 'a/1/weights' of model repository 's3://bucket/models' failed" in message
    assert "Connection reset by peer" in message

    bucket.before_read = lambda key, start: None
    bucket.reads.clear()
    assert bring() == {"a/1/weights": WEIGHTS}
    assert bucket.bytes_read == 35, "the first 60 bytes were there"


def test_a_short_fault_is_no_fault(bucket, bring):
    bucket.write("a/1/weights", WEIGHTS)
    faults = [TimeoutError(), ConnectionRefusedError("refused")]

    def stumble(key: str, start: int) -> None:
        if faults:
            raise faults.pop()

    bucket.before_read = stumble
    assert bring() == {"a/1/weights": WEIGHTS}


def test_a_spoilt_remainder_is_not_taken_for_the_file(bucket, bring, cache):
    bucket.write("a/1/weights", WEIGHTS)
    bucket.before_read = lambda key, start: _fail_from(start, 60)
    error_of(bring)
    (partial,) = (cache.directory / "partial").iterdir()
    partial.write_bytes(b"\0" * 60)

    bucket.before_read = lambda key, start: None
    assert bring() == {"a/1/weights": WEIGHTS}


def _fail_from(start: int, limit: int) -> None:
    if start >= limit:
        raise ConnectionResetError("reset")


@pytest.mark.parametrize("has_md5", [True, False])
def test_a_file_that_changes_meanwhile_is_refused_and_comes_the_next_time(bucket, bring, has_md5):
    bucket.has_md5 = has_md5
    bucket.write("a/1/weights", WEIGHTS)

    def overwrite(key: str, start: int) -> None:
        bucket.before_read = lambda key, start: None
        bucket.write("a/1/weights", WEIGHTS[::-1])

    bucket.before_read = overwrite
    assert "'a/1/weights' of s3://bucket/models changed while it was downloaded" in error_of(bring)
    assert bring() == {"a/1/weights": WEIGHTS[::-1]}


def test_a_file_that_goes_meanwhile_is_told(bucket, bring):
    bucket.write("a/1/weights", WEIGHTS)
    bucket.before_read = lambda key, start: bucket.objects.clear()
    assert "changed while it was downloaded" in error_of(bring)


def test_an_etag_that_only_looks_like_an_md5_misleads_nobody(bucket, bring, monkeypatch):
    """S3 with KMS: 32 hexadecimal digits that are no digest of the content."""
    monkeypatch.setattr(bucket, "info", _with_etag(bucket.info, "0" * 32))
    bucket.write("a/1/weights", WEIGHTS)
    assert bring() == {"a/1/weights": WEIGHTS}
    bucket.write("b/1/weights", WEIGHTS[::-1])
    assert bring()["b/1/weights"] == WEIGHTS[::-1]


def _with_etag(info, etag):
    return lambda key: {**info(key), "ETag": f'"{etag}"'}


def test_stop_ends_a_download_and_keeps_what_came(bucket, bring, cache, stop):
    bucket.write("a/1/weights", WEIGHTS)
    bucket.before_read = lambda key, start: stop.set() if start >= 20 else None
    with pytest.raises(UnavailableError, match="given up"):
        bring(stop=stop)
    (partial,) = (cache.directory / "partial").iterdir()
    assert partial.read_bytes() == WEIGHTS[:40]
    assert bring() == {"a/1/weights": WEIGHTS}


def test_progress_is_told_from_start_to_end(bucket, bring):
    bucket.write("a/1/weights", WEIGHTS)
    seen: list[Progress] = []
    bring(seen.append)
    assert [item.done_bytes for item in seen] == sorted(item.done_bytes for item in seen)
    assert (seen[0].done_bytes, seen[-1].done_bytes) == (0, 95)
    assert str(seen[-1]) == "downloading from s3://bucket/models: 95 bytes of 95 bytes, 100 %"
    bring(seen.append)
    assert (seen[-1].done_bytes, seen[-1].fetched_bytes) == (95, 0)


def test_two_at_once_download_a_file_once(bucket, bring):
    bucket.write("a/1/weights", WEIGHTS)
    is_reading, may_go_on = threading.Event(), threading.Event()

    def wait(key: str, start: int) -> None:
        is_reading.set()
        assert may_go_on.wait(5)

    bucket.before_read = wait
    results: list[dict[str, bytes]] = []
    threads = [threading.Thread(target=lambda: results.append(bring())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert is_reading.wait(5)
    may_go_on.set()
    for thread in threads:
        thread.join(10)
    assert results == [{"a/1/weights": WEIGHTS}] * 2
    assert bucket.bytes_read == len(WEIGHTS)


def test_the_cache_makes_room_before_a_download(bucket, bring, tmp_path):
    small = BlobCache(tmp_path / "small", 100)
    for number in range(3):
        bucket.objects.clear()
        content = bytes([number]) * 95
        bucket.write("a/1/weights", content)
        assert bring(cache=small) == {"a/1/weights": content}
        assert small.size_bytes == 95


def test_a_full_disk_says_what_to_do(bucket, bring, monkeypatch):
    bucket.write("a/1/weights", WEIGHTS)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BlobCache, "keep", full)
    message = error_of(bring)
    assert "there is no space left for 'a/1/weights'" in message
    assert "--cloud-cache-directory" in message


def test_blobs_are_named_by_their_content(bucket, bring, cache):
    bucket.write("a/1/weights", WEIGHTS)
    bring()
    (blob,) = (cache.directory / "blobs").glob("*/*")
    assert blob.name == hashlib.sha256(WEIGHTS).hexdigest()
