"""Archives: what comes out, and everything that must not."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from console.repository import archive
from console.repository.archive import ArchiveLimits, ArchiveRefusedError, Extraction
from tests.console.repository.packing import tar_bytes, tar_with, zip_bytes


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def unpack(
    target: Path, content: bytes, kind: str = "zip", limits: ArchiveLimits | None = None
) -> Extraction:
    file = target.parent / "upload"
    file.write_bytes(content)
    return archive.extract(file, target, kind=kind, limits=limits or ArchiveLimits())


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


MODEL = {"m/config.pbtxt": "name: 'm'", "m/1/model.onnx": b"\x08\x01"}


def test_zip_keeps_folders_and_content(target: Path) -> None:
    result = unpack(target, zip_bytes(MODEL))

    assert files_in(target) == set(MODEL)
    assert (target / "m/1/model.onnx").read_bytes() == b"\x08\x01"
    assert result.total_bytes == 11


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_tar_is_read_with_every_compression(target: Path, mode: str) -> None:
    unpack(target, tar_bytes(MODEL, mode), "tar")

    assert files_in(target) == set(MODEL)


def test_leftovers_of_file_managers_are_left_out_and_named(target: Path) -> None:
    junk = {"__MACOSX/m/._config.pbtxt": "x", "m/.DS_Store": "x", "m/1/__pycache__/a.pyc": "x"}

    result = unpack(target, zip_bytes(MODEL | junk))

    assert files_in(target) == set(MODEL)
    assert set(result.ignored) == set(junk)


HOSTILE_NAMES = [
    "../evil", "m/../../evil", "/etc/evil", "C:/evil", "m\\..\\evil", "m/a\nb", "a" * 300,
    "/".join("d" * 40), "m/\x7f",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_leaves_the_folder_is_refused(target: Path, name: str, kind: str) -> None:
    content = zip_bytes({name: "x"}) if kind == "zip" else tar_bytes({name: "x"})

    with pytest.raises(ArchiveRefusedError):
        unpack(target, content, kind)

    assert files_in(target) == set()
    assert files_in(target.parent) == {"upload"}


@pytest.mark.parametrize(
    "type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_a_tar_with_anything_but_files_and_folders_is_refused(target: Path, type_: bytes) -> None:
    member = tarfile.TarInfo("m/1/model.onnx")
    member.type = type_
    member.linkname = "/etc/passwd"

    with pytest.raises(ArchiveRefusedError, match=r"link|plain file"):
        unpack(target, tar_with(member), "tar")

    assert list(target.iterdir()) == []


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_zip_with_a_link_or_device_is_refused(target: Path, kind: int) -> None:
    info = zipfile.ZipInfo("m/1/model.onnx")
    info.external_attr = (kind | 0o777) << 16
    file = target.parent / "link.zip"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr(info, "/etc/passwd")

    with pytest.raises(ArchiveRefusedError):
        unpack(target, file.read_bytes())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"m/A.txt": "1", "m/a.txt": "2"}, "clashes"),
        ({"M/a": "1", "m/b": "2"}, "differ only in case"),
        ({"m/1": "1", "m/1/model.onnx": "2"}, "both a file and a folder"),
        ({"m/1/model.onnx": "1", "m/1": "2"}, "both a file and a folder"),
    ],
)
def test_names_that_a_file_system_confuses_are_refused(
    target: Path, files: dict[str, str], words: str
) -> None:
    with pytest.raises(ArchiveRefusedError, match=words):
        unpack(target, zip_bytes(files))


def test_the_same_name_twice_is_refused(target: Path) -> None:
    content = zip_bytes({"m/a.txt": "1", "m/b.txt": "2"}).replace(b"m/b.txt", b"m/a.txt")

    with pytest.raises(ArchiveRefusedError, match="appears twice"):
        unpack(target, content)


def test_limits_count_what_really_comes_out(target: Path) -> None:
    content = zip_bytes({"m/zeros": bytes(100_000)})

    with pytest.raises(ArchiveRefusedError, match="limit of 50000 bytes for one file"):
        unpack(target, content, limits=ArchiveLimits(max_file_bytes=50_000))


def test_the_sum_of_all_files_is_limited(target: Path) -> None:
    content = zip_bytes({f"m/{index}": bytes(600) for index in range(3)})

    with pytest.raises(ArchiveRefusedError, match="more than the limit of 1000 bytes"):
        unpack(target, content, limits=ArchiveLimits(max_total_bytes=1000))


def test_a_decompression_bomb_stops_early(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RATIO_COUNTS_FROM_BYTES", 1 << 20)
    content = zip_bytes({"m/bomb": bytes(64 << 20)})

    with pytest.raises(ArchiveRefusedError, match="300 times its size"):
        unpack(target, content)

    assert (target / "m/bomb").stat().st_size < 32 << 20


def test_too_many_entries_are_refused_junk_included(target: Path) -> None:
    content = zip_bytes({f"__MACOSX/{index}": "" for index in range(11)})

    with pytest.raises(ArchiveRefusedError, match="more than 10 entries"):
        unpack(target, content, limits=ArchiveLimits(max_files=10))


def test_extraction_leaves_space_on_the_disk(target: Path) -> None:
    with pytest.raises(ArchiveRefusedError, match="not enough space"):
        unpack(target, zip_bytes(MODEL), limits=ArchiveLimits(keep_free_bytes=1 << 60))


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_cut_off_is_refused_in_one_sentence(target: Path, kind: str) -> None:
    files = {"m/1/data": bytes(range(256)) * 4000}
    content = zip_bytes(files) if kind == "zip" else tar_bytes(files)

    with pytest.raises(ArchiveRefusedError, match="broken or cut off"):
        unpack(target, content[: len(content) // 2], kind)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not an archive at all"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_something_else_under_an_archive_name_is_refused(
    target: Path, content: bytes, kind: str
) -> None:
    with pytest.raises(ArchiveRefusedError):
        unpack(target, content, kind)


def test_a_zip_with_wrong_checksums_is_refused(target: Path) -> None:
    content = bytearray(zip_bytes({"m/a": "hello world, hello world"}))
    content[40] ^= 0xFF

    with pytest.raises(ArchiveRefusedError):
        unpack(target, bytes(content))


def test_an_encrypted_zip_asks_for_one_without_password(target: Path) -> None:
    content = bytearray(zip_bytes({"m/a": "x"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 0x1

    with pytest.raises(ArchiveRefusedError, match="without a password"):
        unpack(target, bytes(content))


def test_an_empty_archive_is_refused(target: Path) -> None:
    with pytest.raises(ArchiveRefusedError, match="no files"):
        unpack(target, zip_bytes({}))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.zip", "zip"), ("A.ZIP", "zip"), ("a.tar.gz", "tar"), ("a.tgz", "tar"), ("a.tar", "tar"),
     ("model.pt", ""), ("model.onnx", ""), ("zip", "")],
)  # fmt: skip
def test_the_name_says_what_an_archive_is(name: str, kind: str) -> None:
    assert archive.archive_kind(name) == kind
