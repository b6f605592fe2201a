from __future__ import annotations

import threading
from pathlib import Path

import pytest

from serving.errors import UnavailableError
from serving.repository import config_file
from serving.repository.cloud.cache import BlobCache
from serving.repository.cloud.root import CloudRoot
from serving.repository.cloud.session import Session
from serving.repository.roots import Roots
from serving.repository.source import LoadRequest, discard
from tests.serving.repository.cloud.conftest import error_of
from tests.waiting import wait_until_blocking


@pytest.fixture
def root(store, tmp_path):
    cache = BlobCache(tmp_path / "cache", 10_000)
    session = Session(cache.directory)
    yield CloudRoot(
        store,
        lambda: (cache, session),
        read_config=lambda directory, override: config_file.read(directory, override).config,
    )
    session.close()


def fetch(root: CloudRoot, name: str = "a", request: LoadRequest | None = None) -> list[str]:
    """What lies in the model directory then, directories with a slash."""
    source = root.source(name, request or LoadRequest())
    assert source is not None
    assert source.remote is not None
    assert not source.directory.exists(), "nothing comes before it is fetched"
    source.remote.fetch(threading.Event(), lambda told: None)
    assert source.directory.name == name
    return sorted(
        str(path.relative_to(source.directory)) + ("/" if path.is_dir() else "")
        for path in source.directory.rglob("*")
    )


POLICY = "version_policy { specific { versions: [1, 3] } }"


@pytest.mark.parametrize(
    ("config", "request_", "versions"),
    [
        ("", LoadRequest(), [3]),
        ("version_policy { all {} }", LoadRequest(), [1, 2, 3]),
        (POLICY, LoadRequest(), [1, 3]),
        (POLICY, LoadRequest(versions=frozenset({2})), [2]),
        (POLICY, LoadRequest('{"version_policy": {"latest": {"num_versions": 2}}}'), [2, 3]),
        ('model_repository_agents { agents { name: "checksum" } }', LoadRequest(), [1, 2, 3]),
        ("not a config", LoadRequest(), []),
    ],
)
def test_only_versions_that_are_going_to_be_served_come(bucket, root, config, request_, versions):
    bucket.write("a/config.pbtxt", config)
    for version in (1, 2, 3):
        bucket.write(f"a/{version}/model.onnx", f"{version}")
    came = fetch(root, request=request_)
    assert came == sorted(
        [*(f"{item}/" for item in versions), *(f"{item}/model.onnx" for item in versions)]
        + ["config.pbtxt"]
    )


def test_everything_beside_the_versions_comes_and_empty_files_too(bucket, root):
    for path in ("labels.txt", "warmup/data", "1/model.onnx/model.onnx", "1/nested/deep/x"):
        bucket.write(f"a/{path}", path)
    bucket.write("a/", "")
    bucket.write("a/1/empty.txt", "")
    bucket.write("a/initial_state/", "")
    assert fetch(root) == sorted(
        ["1/", "1/empty.txt", "1/model.onnx/", "1/model.onnx/model.onnx", "1/nested/"]
        + ["1/nested/deep/", "1/nested/deep/x", "initial_state/", "labels.txt", "warmup/"]
        + ["warmup/data"]
    )


@pytest.mark.parametrize(
    "key", ["../../escape", "1/../../../escape", "/etc/escape", "1//x", "a\\b"]
)
def test_keys_that_lead_outside_are_left_out(bucket, root, key, tmp_path, caplog):
    bucket.write("a/1/model", "good")
    bucket.write(f"a/{key}", "bad")
    assert fetch(root) == ["1/", "1/model"]
    assert not list(tmp_path.rglob("escape"))
    assert "is no usable file name; it is ignored" in caplog.text


@pytest.mark.parametrize("content", ["x", ""])
def test_an_object_that_is_a_directory_too_is_told(bucket, root, content):
    bucket.write("a/1/model", content)
    bucket.write("a/1/model/part", "y")
    message = error_of(lambda: fetch(root))
    assert "is the name of an object and of a directory at once" in message


def test_a_model_that_is_not_there_is_none(bucket, root):
    bucket.write("ab/1/model", "x")
    assert root.source("a", LoadRequest()) is None
    assert root.source(".hidden", LoadRequest()) is None


def test_stamps_move_with_what_they_stamp(bucket, root):
    bucket.write("a/config.pbtxt", "1")
    bucket.write("a/1/model", "1")
    bucket.write("a/2/model", "2")
    before = root.stamps()["a"]
    assert root.source("a", LoadRequest()).stamp == before

    bucket.write("a/2/model", "3")
    after = root.stamps()["a"]

    assert after.is_same_version(before, 1)
    assert not after.is_same_version(before, 2)
    bucket.write("a/config.pbtxt", "2")
    assert not root.stamps()["a"].is_same_version(after, 1)


def test_an_outage_leaves_poll_with_what_was_there(bucket, root, caplog):
    bucket.write("a/1/model", "1")
    before = root.stamps()

    def fail() -> None:
        raise ConnectionRefusedError("refused")

    bucket.before_list = fail
    assert root.stamps() == before
    assert "its models stay as they are" in caplog.text


def test_names_answer_at_once_and_are_renewed_behind(bucket, store):
    now = [0.0]
    root = CloudRoot(store, None, read_config=None, clock=lambda: now[0])
    bucket.write("a/1/model", "1")
    root.check()
    assert root.names() == {"a"}
    bucket.write("b/1/model", "1")
    assert root.names() == {"a"}
    now[0] = 16.0
    wait_until_blocking(lambda: root.names() == {"a", "b"})


def test_discarding_takes_what_was_inherited_along(bucket, root):
    bucket.write("a/1/model", "1")
    old, new = (root.source("a", LoadRequest()) for _ in range(2))
    for source in (old, new):
        source.remote.fetch(threading.Event(), lambda told: None)
    new.remote.inherit(old.remote)
    discard(new)
    assert not new.directory.parent.exists()
    assert not old.directory.exists()


def test_an_outage_of_one_root_hides_no_model_of_another(bucket, root, tmp_path):
    (tmp_path / "local" / "here").mkdir(parents=True)

    def fail() -> None:
        raise ConnectionRefusedError("refused")

    bucket.before_list = fail
    roots = Roots([tmp_path / "local", root])
    assert roots.source("here", LoadRequest()).directory == tmp_path / "local" / "here"
    with pytest.raises(UnavailableError, match="cannot be reached"):
        roots.source("there", LoadRequest())
    assert list(roots.stamps({})[0]) == ["here"]


def test_of_a_double_in_poll_the_copy_goes_on_that_serves(bucket, root, tmp_path):
    local = tmp_path / "local"
    (local / "a").mkdir(parents=True)
    bucket.write("a/1/model", "1")
    roots = Roots([local, root])
    here, there = local / "a", root.place("a")
    root.check()
    assert roots.names() == {"a": [here, there]}
    found, duplicates = roots.stamps({"a": there})
    assert (found["a"].directory, duplicates) == (there, ["a"])
    found, duplicates = roots.stamps({"a": here})
    assert (found["a"].directory, duplicates) == (here, ["a"])
    assert roots.stamps({}) == ({}, ["a"])


def test_places_of_models_are_no_paths_of_this_machine(root):
    assert not Path(root.place("a")).exists()
