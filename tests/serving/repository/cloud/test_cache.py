from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from serving.errors import InvalidArgumentError, UnavailableError
from serving.repository.cloud.cache import BlobCache, locked
from serving.repository.cloud.session import Session


def put(cache: BlobCache, content: str, *keys: str) -> Path:
    with cache.partial(keys[-1], threading.Event()) as file:
        file.write(content.encode())
        return cache.keep(file, hashlib.sha256(content.encode()).hexdigest(), keys)


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(tmp_path / "cache", 10)


def contents(cache: BlobCache) -> list[str]:
    return sorted(path.read_text() for path in (cache.directory / "blobs").glob("*/*"))


def test_equal_contents_lie_there_once_whatever_their_names(cache):
    first = put(cache, "weights", "md5:1:7", "s3:a")
    second = put(cache, "weights", "gs:b")
    assert first == second
    assert {cache.find([key]) for key in ("md5:1:7", "s3:a", "gs:b")} == {first}
    assert cache.find(["other"]) is None
    assert contents(cache) == ["weights"]


def test_what_was_used_longest_ago_goes_first(cache):
    for name in ("a", "b", "c"):
        put(cache, name * 4, name)
    for age, name in enumerate(("b", "c", "a")):
        blob = cache.find([name])
        os.utime(blob, ns=(age * 10**9, blob.stat().st_mtime_ns))
    assert cache.trim() == 4
    assert contents(cache) == ["aaaa", "cccc"]
    assert cache.find(["b"]) is None
    cache.trim(coming_bytes=6)
    assert contents(cache) == ["aaaa"]


def test_what_a_model_uses_stays(cache, tmp_path):
    blob = put(cache, "used by a model", "a")
    put(cache, "unused", "b")
    cache.link(blob, tmp_path / "model.bin")
    cache.trim()
    assert contents(cache) == ["used by a model"]


def test_a_limit_of_zero_keeps_nothing_and_harms_no_model(tmp_path):
    cache = BlobCache(tmp_path / "cache", 0)
    cache.link(put(cache, "weights", "a"), tmp_path / "model.bin")
    cache.trim()
    assert contents(cache) == []
    assert (tmp_path / "model.bin").read_text() == "weights"


@pytest.mark.parametrize("harm", ["cut off", "written to"])
def test_a_harmed_blob_is_not_served(cache, harm):
    blob = put(cache, "weights", "a")
    blob.chmod(0o644)
    if harm == "cut off":
        os.truncate(blob, 3)
    else:
        blob.write_text("WEIGHTS")
        os.utime(blob, ns=(0, 1))
    assert cache.find(["a"]) is None
    assert not blob.exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="name a directory that can be written with"):
        BlobCache(tmp_path / "file" / "cache", 1)


def test_one_writer_at_a_time_and_waiting_can_be_given_up(tmp_path):
    given_up = threading.Event()
    given_up.set()
    path = tmp_path / "lock"
    with (
        locked(path, threading.Event()),
        pytest.raises(UnavailableError, match="given up"),
        locked(path, given_up),
    ):
        pytest.fail("both had it")
    with locked(tmp_path / "lock", threading.Event()) as file:
        assert file.writable()


DIES = """
import os, sys, threading
from pathlib import Path
from serving.repository.cloud.session import Session
session = Session(Path(sys.argv[1]))
place = session.place_for("m")
place.mkdir(parents=True)
os._exit(9)
"""


def test_directories_of_a_process_that_died_are_swept_and_those_of_the_living_stay(tmp_path):
    living = Session(tmp_path)
    living.place_for("m").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False, timeout=30)
    assert len(list((tmp_path / "sessions").glob("*/1/m"))) == 2

    another = Session(tmp_path)

    assert [path.parents[1] for path in (tmp_path / "sessions").glob("*/1/m")] == [living.directory]
    living.close()
    another.close()
    assert list((tmp_path / "sessions").iterdir()) == []
