"""Reads of the repository on disk and of uploads and revisions; changes nothing. Any thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from django.db.models import Q, QuerySet

from console.repository import staging
from console.repository.choices import OPEN_STATES
from console.repository.models import ConfigRevision, FileDigest, TrashEntry, Upload
from console.repository.names import NameRefusedError, check_model_name, is_version, resolve_inside
from serving.errors import NotFoundError
from serving.repository.layout import ModelDirectory, scan_repository

TEXT_BYTES = 512 << 10
TEXT_ENDS = frozenset(
    {".pbtxt", ".txt", ".py", ".json", ".md", ".yaml", ".yml", ".csv", ".xml", ".toml", ".cfg"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder, as the browser lists it."""

    name: str
    path: str
    """Relative to the repository."""
    is_folder: bool
    bytes: int
    changed_at: datetime
    is_link: bool = False
    is_version: bool = False
    is_text: bool = False


@dataclass(slots=True)
class Listing:
    path: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(name, path) of every folder on the way, for the breadcrumb."""
        names = [name for name in self.path.split("/") if name]
        return [(name, "/".join(names[: index + 1])) for index, name in enumerate(names)]

    @property
    def model(self) -> str:
        return self.path.split("/")[0]

    @property
    def version(self) -> str:
        """The version folder that is listed, or empty."""
        names = self.path.split("/")
        return names[1] if len(names) > 1 and is_version(names[1]) else ""


def models_on_disk() -> list[ModelDirectory]:
    """Every model directory; empty while the repository does not exist yet."""
    root = staging.repository_root()
    if not root.is_dir():
        return []
    return [model for model in scan_repository(root) if not model.name.startswith(".")]


def model_exists(model: str) -> bool:
    try:
        return (staging.repository_root() / check_model_name(model)).is_dir()
    except NameRefusedError:
        return False


def versions_on_disk(model: str) -> list[int]:
    """Version folders of a model, ascending; empty when there is no such model."""
    if not model_exists(model):
        return []
    return sorted(
        int(entry.name)
        for entry in os.scandir(staging.repository_root() / model.strip())
        if entry.is_dir() and is_version(entry.name)
    )


def resolve(path: str) -> Path:
    """An existing file or folder of the repository. Raises NotFoundError."""
    root = staging.repository_root()
    if not path.strip("/"):
        return root
    try:
        found = resolve_inside(root, path.strip("/"))
    except NameRefusedError as error:
        raise NotFoundError(str(error)) from error
    hidden = path.strip("/").split("/")[0].startswith(".")
    if hidden or not found.exists():
        raise NotFoundError(f"There is no '{path.strip('/')}' in the repository.")
    return found


def list_directory(path: str) -> Listing:
    """Folders first, then files. Raises NotFoundError."""
    folder = resolve(path)
    listing = Listing(path.strip("/"))
    at_root = not listing.path
    if at_root and not folder.exists():
        return listing
    if not folder.is_dir():
        raise NotFoundError(f"'{listing.path}' is a file.")
    for item in os.scandir(folder):
        if at_root and (item.name.startswith(".") or not item.is_dir()):
            continue
        # What vanishes between the listing and the look at it is not listed.
        with suppress(FileNotFoundError):
            listing.entries.append(entry_for(folder / item.name, listing.path))
    listing.entries.sort(key=_browser_order)
    return listing


def _browser_order(entry: Entry) -> tuple[bool, bool, int, str]:
    number = int(entry.name) if entry.is_version else 0
    return (not entry.is_folder, not entry.is_version, -number, entry.name.lower())


def entry_for(path: Path, parent: str) -> Entry:
    status = path.lstat()
    is_folder = path.is_dir()
    return Entry(
        name=path.name,
        path=f"{parent}/{path.name}".lstrip("/"),
        is_folder=is_folder,
        bytes=_tree_bytes(path) if is_folder else status.st_size,
        changed_at=datetime.fromtimestamp(status.st_mtime, UTC),
        is_link=stat.S_ISLNK(status.st_mode),
        is_version=is_folder and is_version(path.name),
        is_text=not is_folder and path.suffix.lower() in TEXT_ENDS and status.st_size <= TEXT_BYTES,
    )


def _tree_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in _files_below(folder))


def _files_below(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder, followlinks=False):
        yield from (Path(base) / name for name in names)


def read_text(path: str) -> str | None:
    """A text file to show, None when it is too large or not text. Raises NotFoundError."""
    file = resolve(path)
    if not file.is_file() or file.stat().st_size > TEXT_BYTES:
        return None
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def digest_of(path: str) -> str:
    """The sha256 of a file, remembered until its size or time changes. Raises NotFoundError."""
    file = resolve(path)
    if not file.is_file():
        raise NotFoundError(f"'{path}' is not a file.")
    status = file.stat()
    seen = FileDigest.objects.filter(path=path).first()
    if seen and (seen.size, seen.changed_ns) == (status.st_size, status.st_mtime_ns):
        return seen.sha256
    digest = staging.file_sha256(file)
    FileDigest.objects.update_or_create(
        path=path,
        defaults={"size": status.st_size, "changed_ns": status.st_mtime_ns, "sha256": digest},
    )
    return digest


def version_files(model: str, version: int) -> list[str]:
    """Paths of the files of a version, relative to its folder."""
    folder = staging.repository_root() / model / str(version)
    return [str(path) for path in staging.list_files(folder)]


def open_uploads() -> QuerySet[Upload]:
    """Uploads that somebody still has to finish."""
    return Upload.objects.filter(state__in=OPEN_STATES).select_related("actor")


def recent_uploads(limit: int = 20) -> QuerySet[Upload]:
    return Upload.objects.select_related("actor")[:limit]


def get_upload(upload_id: UUID | str) -> Upload:
    """Raises NotFoundError."""
    try:
        return Upload.objects.select_related("actor").get(pk=upload_id)
    except (Upload.DoesNotExist, ValueError) as error:
        raise NotFoundError(f"There is no upload {upload_id}.") from error


def revisions_for(model: str) -> QuerySet[ConfigRevision]:
    """Newest first."""
    # PostgreSQL refuses a NUL; nothing is called so.
    name = model.replace("\0", " ")
    return ConfigRevision.objects.filter(model=name).select_related("actor")


def get_revision(model: str, number: int) -> ConfigRevision:
    """Raises NotFoundError."""
    revision = revisions_for(model).filter(number=number).first()
    if revision is None:
        raise NotFoundError(f"'{model}' has no config revision r{number}.")
    return revision


def trash_for(model: str) -> QuerySet[TrashEntry]:
    """What was deleted of a model and can still be restored."""
    return TrashEntry.objects.filter(model=model, restored_at=None).select_related("actor")


def trash() -> QuerySet[TrashEntry]:
    return TrashEntry.objects.filter(Q(restored_at=None)).select_related("actor")
