from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from serving.errors import InvalidArgumentError
from serving.repository.override import remove, write_override


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_files_become_a_model_directory_that_can_be_removed(temporary: Path):
    root = write_override({"1/model.onnx": b"weights", "labels.txt": b"a\n"})

    assert (root / "1" / "model.onnx").read_bytes() == b"weights"
    assert (root / "labels.txt").read_bytes() == b"a\n"
    assert root.stat().st_mode & 0o077 == 0
    remove(root)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "1/../../../etc/x",
        "/etc/passwd",
        "1//model.onnx",
        "./model.onnx",
        "1/./model.onnx",
        "1\\..\\x",
        "1/model\0.onnx",
        "",
        "1/",
        "..",
        "x" * 300,
        "1/\ud800",
    ],
)
def test_path_that_leaves_or_bends_is_refused_and_nothing_stays(name: str, temporary: Path):
    with pytest.raises(InvalidArgumentError, match="model file override"):
        write_override({"1/good": b"", name: b"x"})

    assert list(temporary.iterdir()) == []
    assert sorted(item.name for item in temporary.parent.iterdir()) == ["temporary"]


@pytest.mark.parametrize("names", [("1", "1/model"), ("1/model", "1"), ("a/b", "a/b/c/d")])
def test_file_that_is_a_directory_too_is_refused(names: tuple[str, str], temporary: Path):
    with pytest.raises(InvalidArgumentError, match="a file and a directory at once"):
        write_override(dict.fromkeys(names, b"x"))
    assert list(temporary.iterdir()) == []
