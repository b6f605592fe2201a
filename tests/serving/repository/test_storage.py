from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving.errors import InvalidArgumentError
from serving.repository.storage import (
    RootListing,
    check_root,
    stamp_model,
    version_number,
)
from tests.serving.repository.fakes import write_model


def touch(path: Path) -> None:
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_version_numbers_are_plain_integers():
    names = ["1", "0", "10", "01", "00", "-1", "abc", "1.0", "", "\u0663"]
    assert [version_number(name) for name in names] == [1, 0, 10, *[None] * 7]


def test_stamp_tells_which_version_changed(tmp_path: Path):
    model = write_model(tmp_path, "m", v1="a", v2="b")
    before = stamp_model(model)
    assert stamp_model(model) == before

    touch(model / "2" / "model")
    after = stamp_model(model)

    assert after != before
    assert after.is_same_version(before, 1)
    assert not after.is_same_version(before, 2)


def test_edit_of_the_config_or_a_stray_file_changes_every_version(tmp_path: Path):
    model = write_model(tmp_path, "m", v1="a")
    before = stamp_model(model)

    (model / ".config.pbtxt.swp").write_text("")

    assert not stamp_model(model).is_same_version(before, 1)


def test_what_python_writes_itself_is_no_edit(tmp_path: Path):
    model = write_model(tmp_path, "m", v1="a")
    before = stamp_model(model)
    (model / "1" / "__pycache__").mkdir()
    (model / "1" / "__pycache__" / "model.pyc").write_bytes(b"")

    assert stamp_model(model) == before


def test_links_are_followed_and_loops_end(tmp_path: Path):
    real = write_model(tmp_path, "real", v1="a")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "1").symlink_to(real / "1")
    (tmp_path / "m" / "loop").symlink_to(tmp_path / "m")
    (tmp_path / "m" / "dangling").symlink_to(tmp_path / "nowhere")

    stamp = stamp_model(tmp_path / "m")

    assert [item[0] for item in stamp.versions[1]] == ["1/model"]


def test_names_of_several_roots_and_new_models_show_up(tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    write_model(one, "a")
    (one / ".hidden").mkdir()
    (one / "file").write_text("")
    listing = RootListing([one, two])
    assert listing.names() == {"a": [one / "a"]}

    write_model(two, "a")
    write_model(two, "b")
    touch(two)

    assert listing.names() == {"a": [one / "a", two / "a"], "b": [two / "b"]}
    assert listing.stamps({})[1] == ["a"]
    assert listing.stamps({"a": two / "a"})[0]["a"].directory == two / "a"


def test_root_that_goes_away_keeps_its_last_names_but_fails_a_poll(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    write_model(root, "a")
    listing = RootListing([root])
    listing.names()
    root.rename(tmp_path / "elsewhere")

    assert list(listing.names()) == ["a"]
    with pytest.raises(OSError, match="root"):
        listing.names(strict=True)


def test_root_must_be_a_directory(tmp_path: Path):
    check_root(tmp_path)
    with pytest.raises(InvalidArgumentError, match="not a valid directory"):
        check_root(tmp_path / "nope")


def test_a_link_that_leads_in_a_circle_hides_no_other_model(tmp_path: Path):
    write_model(tmp_path, "m", v1="a")
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")

    assert list(RootListing((tmp_path,)).names()) == ["m"]


def test_a_name_that_is_no_text_is_ignored_with_a_warning(tmp_path: Path, caplog):
    write_model(tmp_path, "m", v1="a")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")

    assert list(RootListing((tmp_path,)).names()) == ["m"]
    assert "a model's name must be UTF-8 text" in caplog.text
