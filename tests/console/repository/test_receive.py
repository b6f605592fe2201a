"""Bytes arrive: offsets, limits, paths that stay inside, wishes that make sense."""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.repository import services, staging, uploads
from console.repository.errors import RefusedError, StorageError
from console.repository.models import Upload


def test_chunks_continue_where_the_file_ends(repository: Path, operator: Any) -> None:
    upload = services.create_upload(actor=operator, file_name="m.zip", announced_bytes=6)

    assert uploads.receive(upload, io.BytesIO(b"abc"), offset=0) == 3
    with pytest.raises(staging.OffsetMismatchError) as caught:
        uploads.receive(upload, io.BytesIO(b"xyz"), offset=0)
    assert caught.value.offset == 3
    assert uploads.receive(upload, io.BytesIO(b"def"), offset=3) == 6
    assert upload.received_bytes == 6
    with pytest.raises(RefusedError, match="larger than"):
        uploads.receive(upload, io.BytesIO(b"!"), offset=6)


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b", "a/b/c")])
def test_a_name_that_is_both_a_file_and_a_folder_is_refused(
    repository: Path, operator: Any, first: str, second: str
) -> None:
    upload = services.create_upload(actor=operator)
    uploads.receive(upload, io.BytesIO(b"x"), path=first)

    with pytest.raises(RefusedError, match="both a file and a folder"):
        uploads.receive(upload, io.BytesIO(b"x"), path=second)


def test_a_path_that_no_disk_could_hold_is_refused(repository: Path, operator: Any) -> None:
    upload = services.create_upload(actor=operator)

    with pytest.raises(RefusedError, match="longer than 1024 bytes"):
        uploads.receive(upload, io.BytesIO(b"x"), path="/".join(["d" * 200] * 6))


def test_half_an_upload_cannot_be_completed(repository: Path, operator: Any) -> None:
    upload = services.create_upload(actor=operator, file_name="m.zip", announced_bytes=6)
    uploads.receive(upload, io.BytesIO(b"abc"), offset=0)

    with pytest.raises(RefusedError, match="3 of 6 bytes"):
        services.complete_upload(actor=operator, upload=upload)


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a\\b", "..", ""])
def test_a_folder_upload_stays_in_its_folder(repository: Path, operator: Any, path: str) -> None:
    upload = services.create_upload(actor=operator)

    with pytest.raises(RefusedError):
        uploads.receive(upload, io.BytesIO(b"x"), path=path)

    assert staging.list_files(repository.parent) == []


def test_a_link_placed_in_staging_is_not_followed(repository: Path, operator: Any) -> None:
    upload = services.create_upload(actor=operator, file_name="m.zip")
    outside = repository.parent / "outside"
    outside.write_bytes(b"")
    os.symlink(outside, staging.area(upload.id).incoming / "m.zip")

    with pytest.raises(OSError, match="symbolic"):
        uploads.receive(upload, io.BytesIO(b"x"))

    assert outside.read_bytes() == b""


@pytest.mark.parametrize(
    ("wishes", "field"),
    [({"model": "../x"}, "model"), ({"version": "01"}, "version"), ({"version": "-1"}, "version"),
     ({"file_name": "../x.zip"}, "file_name"), ({"sha256": "xyz"}, "sha256"),
     ({"announced_bytes": 1 << 60}, "size")],
)  # fmt: skip
def test_a_bad_wish_is_refused_with_its_field(
    repository: Path, operator: Any, wishes: dict[str, Any], field: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        services.create_upload(actor=operator, **wishes)

    assert list(caught.value.fields) == [field]


@contextmanager
def no_room_for_files() -> Iterator[None]:
    """The system refuses every byte that this process writes into a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_takes_nothing_is_named_and_what_arrived_stays(
    repository: Path, operator: Any
) -> None:
    upload = services.create_upload(actor=operator, file_name="m.zip")
    uploads.receive(upload, io.BytesIO(b"abc"), offset=0)

    with no_room_for_files(), pytest.raises(StorageError, match="takes no write"):
        uploads.receive(upload, io.BytesIO(b"def"), offset=3)

    assert uploads.receive(upload, io.BytesIO(b"def"), offset=3) == 6


def test_an_upload_leaves_room_on_the_disk(repository: Path, operator: Any, settings: Any) -> None:
    settings.CONCH_KEEP_FREE_BYTES = 1 << 60
    upload = services.create_upload(actor=operator, file_name="m.zip")

    with pytest.raises(RefusedError, match="CONCH_KEEP_FREE_BYTES"):
        uploads.receive(upload, io.BytesIO(b"abc"), offset=0)


def test_an_upload_that_finds_no_place_leaves_no_row(repository: Path, operator: Any) -> None:
    (repository / ".conch").write_text("a file in the way")

    with pytest.raises(OSError, match="Not a directory|exists"):
        services.create_upload(actor=operator)

    assert not Upload.objects.exists()
