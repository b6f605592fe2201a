"""Take files out of a zip or tar archive into a folder, and refuse what could do harm.

Pure file work, any thread (the control process calls it). Refused: names that leave the folder,
links, devices, encrypted members, names that clash, and bombs: what is counted are the bytes that
really come out, never what a header promises.
"""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from console.repository.names import ClashGuard, NameRefusedError, is_junk, safe_relative_path

COPY_BYTES = 1 << 20
# Below this a high ratio proves nothing: a small file of zeros packs to almost nothing.
RATIO_COUNTS_FROM_BYTES = 256 << 20
ZIP_ENDS = (".zip",)
TAR_ENDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)


class ArchiveRefusedError(Exception):
    """The archive is broken or not to be trusted; the message says what and how to mend it."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    max_files: int = 20_000
    max_file_bytes: int = 64 << 30
    max_total_bytes: int = 128 << 30
    max_ratio: int = 300
    """Bytes out for each byte of the archive."""
    keep_free_bytes: int = 256 << 20
    """Space that extraction leaves on the disk."""


@dataclass(slots=True)
class Extraction:
    files: list[PurePosixPath] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    total_bytes: int = 0


def archive_kind(file_name: str) -> str:
    """`zip`, `tar`, or empty for a plain file. By name: a TorchScript file is a zip as well."""
    lowered = file_name.lower()
    if lowered.endswith(ZIP_ENDS):
        return "zip"
    return "tar" if lowered.endswith(TAR_ENDS) else ""


def extract(archive: Path, target: Path, *, kind: str, limits: ArchiveLimits) -> Extraction:
    """Extract `archive` into the empty folder `target`. Raises ArchiveRefusedError."""
    writer = _Writer(target, limits, archive.stat().st_size)
    try:
        if kind == "zip":
            _extract_zip(archive, writer)
        else:
            _extract_tar(archive, writer)
    except NameRefusedError as error:
        raise ArchiveRefusedError(f"{error} Nothing was taken from the archive.") from error
    except _BROKEN as error:
        raise ArchiveRefusedError(
            f"The {kind} archive is broken or cut off ({_words(error)}). Pack and upload it again."
        ) from error
    if not writer.result.files:
        raise ArchiveRefusedError("The archive holds no files.")
    return writer.result


def _words(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


class _Writer:
    """Creates files below the target and counts what it writes."""

    def __init__(self, target: Path, limits: ArchiveLimits, archive_bytes: int) -> None:
        self.result = Extraction()
        self._target = target
        self._limits = limits
        self._archive_bytes = max(1, archive_bytes)
        self._room = shutil.disk_usage(target).free - limits.keep_free_bytes
        self._clashes = ClashGuard()
        self._entries = 0

    def accepts(self, name: str) -> PurePosixPath | None:
        """The path of a member, or None when it is junk. Raises for what may not be."""
        self._entries += 1
        if self._entries > self._limits.max_files:
            raise ArchiveRefusedError(
                f"The archive holds more than {self._limits.max_files} entries."
            )
        path = safe_relative_path(name)
        if is_junk(path):
            self.result.ignored.append(str(path))
            return None
        return path

    def folder(self, name: str) -> None:
        if not [part for part in name.split("/") if part not in ("", ".")]:
            return
        path = self.accepts(name)
        if path is not None:
            self._clashes.add_folder(path)
            self._target.joinpath(path).mkdir(parents=True, exist_ok=True)

    def file(self, path: PurePosixPath, source: IO[bytes]) -> None:
        self._clashes.add(path)
        destination = self._target.joinpath(path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL and O_NOFOLLOW: never through something that is already there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(destination, flags, 0o644), "wb") as out:
            self._copy(path, source, out)
        self.result.files.append(path)

    def _copy(self, path: PurePosixPath, source: IO[bytes], out: IO[bytes]) -> None:
        size = 0
        while chunk := source.read(COPY_BYTES):
            size += len(chunk)
            self.result.total_bytes += len(chunk)
            self._check_size(path, size)
            out.write(chunk)

    def _check_size(self, path: PurePosixPath, size: int) -> None:
        limits, total = self._limits, self.result.total_bytes
        if size > limits.max_file_bytes:
            raise ArchiveRefusedError(
                f"'{path}' is larger than the limit of {limits.max_file_bytes} bytes for one file."
            )
        if total > limits.max_total_bytes:
            raise ArchiveRefusedError(
                f"The archive unpacks to more than the limit of {limits.max_total_bytes} bytes."
            )
        if total > max(RATIO_COUNTS_FROM_BYTES, limits.max_ratio * self._archive_bytes):
            raise ArchiveRefusedError(
                f"The archive unpacks to more than {limits.max_ratio} times its size, as a "
                "decompression bomb does. Upload the files unpacked if they are meant so."
            )
        if total > self._room:
            raise ArchiveRefusedError(
                "There is not enough space on the disk of the model repository to unpack this."
            )


def _extract_zip(archive: Path, writer: _Writer) -> None:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            name = info.orig_filename
            if name.endswith("/"):
                writer.folder(name)
                continue
            _refuse_zip_member(info)
            path = writer.accepts(name)
            if path is None:
                continue
            try:
                with opened.open(info) as source:
                    writer.file(path, source)
            except (NotImplementedError, RuntimeError) as error:
                raise ArchiveRefusedError(
                    f"'{path}' cannot be unpacked ({_words(error)}). Pack it with deflate."
                ) from error


def _refuse_zip_member(info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 0x1:
        raise ArchiveRefusedError(
            f"'{info.filename}' is encrypted. Pack the archive without a password."
        )
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise ArchiveRefusedError(_link_text(info.filename))
    if kind not in (0, stat.S_IFREG):
        raise ArchiveRefusedError(f"'{info.filename}' is not a plain file.")


def _extract_tar(archive: Path, writer: _Writer) -> None:
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            if member.isdir():
                writer.folder(member.name)
                continue
            if member.issym() or member.islnk():
                raise ArchiveRefusedError(_link_text(member.name))
            if not member.isreg() or member.issparse():
                raise ArchiveRefusedError(
                    f"'{member.name}' is not a plain file (a device, pipe or sparse file)."
                )
            path = writer.accepts(member.name)
            if path is None:
                continue
            source = opened.extractfile(member)
            if source is None:
                raise ArchiveRefusedError(f"'{path}' cannot be read from the archive.")
            with source:
                writer.file(path, source)


def _link_text(name: str) -> str:
    return f"'{name}' is a link. Pack the file itself (tar: --dereference, zip: without -y)."
