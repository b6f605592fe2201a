"""Where uploads wait: a hidden folder on the repository's own file system.

Pure file work below `staging_root()`, any thread; one folder for each upload:
`incoming/` what was sent, `unpacked/` its files, `edited/config.pbtxt` what a person typed,
`ready/<model>/` the model directory as it would be published. The folder's name starts with a dot,
so no scan of the repository takes it for a model, and a rename out of it is atomic.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import IO, Any

from django.conf import settings
from django.utils import timezone

from console.repository.arrange import CONFIG_NAME, Arrangement
from console.repository.names import is_junk, safe_relative_path

HIDDEN_FOLDER = ".conch"
COPY_BYTES = 1 << 20
# Within one upload only the config changes, and it is small.
REHASH_BELOW_BYTES = 8 << 20


class OffsetMismatchError(Exception):
    """A chunk does not start where the file ends now."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"The upload continues at byte {offset}.")
        self.offset = offset


class StagingFullError(Exception):
    """More bytes than announced, than allowed, or than the disk holds."""


def repository_root() -> Path:
    return Path(settings.CONCH_MODEL_REPOSITORY)


def hidden_root() -> Path:
    return repository_root() / HIDDEN_FOLDER


def staging_root() -> Path:
    return hidden_root() / "staging"


@dataclass(frozen=True, slots=True)
class StagingArea:
    root: Path

    @property
    def incoming(self) -> Path:
        return self.root / "incoming"

    @property
    def unpacked(self) -> Path:
        return self.root / "unpacked"

    @property
    def ready(self) -> Path:
        return self.root / "ready"

    @property
    def edited_config(self) -> Path:
        return self.root / "edited" / CONFIG_NAME

    def model_directory(self, model: str) -> Path:
        return self.ready / model

    def create(self) -> None:
        self.incoming.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One thread or process at a time lays out, checks or publishes this upload.

        Raises FileNotFoundError when the upload's folder is gone.
        """
        with (self.root / "lock").open("w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def received_bytes(self, path: str) -> int:
        """How far the file `path` has come."""
        try:
            return (self.incoming / safe_relative_path(path)).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0


def area(upload_id: object) -> StagingArea:
    return StagingArea(staging_root() / str(upload_id))


def append(place: StagingArea, path: str, source: IO[bytes], *, offset: int, limit: int) -> int:
    """Append `source` to the incoming file `path` at `offset`; returns its new size.

    Raises OffsetMismatchError, StagingFullError, NameRefusedError. A broken connection leaves what
    arrived, so that the sender continues from there.
    """
    target = place.incoming / safe_relative_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Never truncates, never follows a link; the position is the file's own end.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    # Unbuffered: what a full disk refuses must not be tried again by the close.
    with os.fdopen(os.open(target, flags, 0o644), "ab", buffering=0) as out:
        size = os.fstat(out.fileno()).st_size
        if size != offset:
            raise OffsetMismatchError(size)
        while chunk := source.read(COPY_BYTES):
            if size + len(chunk) > limit:
                raise StagingFullError(f"'{path}' is larger than the {limit} bytes allowed.")
            if shutil.disk_usage(target.parent).free - len(chunk) < settings.CONCH_KEEP_FREE_BYTES:
                raise StagingFullError(
                    f"'{path}' does not fit on the disk of the model repository, of which "
                    f"{settings.CONCH_KEEP_FREE_BYTES} bytes stay free (CONCH_KEEP_FREE_BYTES)."
                )
            rest = memoryview(chunk)
            while rest:
                rest = rest[out.write(rest) :]
            size += len(chunk)
    return size


def list_files(root: Path) -> list[PurePosixPath]:
    """Relative paths of all plain files below `root`, sorted; links are not followed."""
    found: list[PurePosixPath] = []
    for folder, _, names in os.walk(root, followlinks=False):
        base = Path(folder)
        for name in names:
            path = base / name
            if path.is_file() and not path.is_symlink():
                found.append(PurePosixPath(path.relative_to(root).as_posix()))
    return sorted(found)


def take_files(source: Path, target: Path) -> list[str]:
    """Use files as they are (a folder, a bare file); returns the junk that was left out."""
    target.mkdir(parents=True, exist_ok=True)
    ignored = []
    for path in list_files(source):
        if is_junk(path):
            ignored.append(str(path))
        else:
            link_or_copy(source / path, target / path)
    return ignored


def build(place: StagingArea, arrangement: Arrangement, config_text: str | None) -> Path:
    """Lay out `ready/<model>/` anew from the unpacked files; `config_text` wins over theirs."""
    shutil.rmtree(place.ready, ignore_errors=True)
    directory = place.model_directory(arrangement.model)
    directory.mkdir(parents=True)
    for version in arrangement.versions:
        (directory / str(version)).mkdir(exist_ok=True)
    for target, source in arrangement.files.items():
        if config_text is not None and target == PurePosixPath(CONFIG_NAME):
            continue
        link_or_copy(place.unpacked / source, directory / target)
    if config_text is not None:
        write_text(directory / CONFIG_NAME, config_text)
    return directory


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for the same bytes where the file system can; large files are not doubled."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


Manifest = dict[str, dict[str, Any]]


def manifest(root: Path, paths: Iterable[PurePosixPath], known: Manifest) -> Manifest:
    """Path -> size and sha256; a large file that `known` has with this size is not read again."""
    result: Manifest = {}
    for path in paths:
        size = (root / path).stat().st_size
        entry = known.get(str(path))
        if entry is None or entry["bytes"] != size or size < REHASH_BELOW_BYTES:
            entry = {"bytes": size, "sha256": file_sha256(root / path)}
        result[str(path)] = entry
    return result


def stale_before() -> datetime:
    """Open uploads that nobody touched since then are discarded."""
    days: int = settings.CONCH_UPLOAD_KEEP_DAYS
    return timezone.now() - timedelta(days=days)


def remove_strays(*, keep: set[str]) -> None:
    """Remove staging folders that belong to no open upload, a day after their last change."""
    if not staging_root().is_dir():
        return
    for folder in staging_root().iterdir():
        age = time.time() - folder.stat().st_mtime
        if folder.name not in keep and age > 24 * 3600:
            shutil.rmtree(folder, ignore_errors=True)
