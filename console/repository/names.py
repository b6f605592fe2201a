"""Names that come from outside: paths inside an archive, model names, versions.

Pure functions, any thread. Everything that an upload or an address names passes through here
before it touches the disk, so the ways out of a folder are closed in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

MAX_NAME_BYTES = 255
MAX_DEPTH = 32
MAX_PATH_BYTES = 1024
MAX_VERSION = 2**63 - 1
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}")
_VERSION = re.compile(r"0|[1-9][0-9]{0,18}")
_DRIVE = re.compile(r"^[A-Za-z]:")
# Addresses of the console that a model of this name would hide behind.
_RESERVED_MODEL_NAMES = frozenset({"upload", "con", "nul"})
_JUNK_FOLDERS = frozenset({"__macosx", ".git", ".ipynb_checkpoints", "__pycache__", ".svn"})
_JUNK_FILES = frozenset({".ds_store", "thumbs.db", "desktop.ini", ".gitignore", ".gitattributes"})


class NameRefusedError(ValueError):
    """A name that may not be used; the message says which and why."""


def _shown(name: str) -> str:
    """A name from outside, safe to put in a message."""
    text = name.encode("utf-8", "backslashreplace").decode("utf-8")
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _check_component(part: str, name: str) -> None:
    if part == "..":
        raise NameRefusedError(f"'{_shown(name)}' leaves the folder ('..').")
    try:
        size = len(part.encode("utf-8"))
    except UnicodeEncodeError:
        raise NameRefusedError(f"The name '{_shown(name)}' is not valid UTF-8.") from None
    if size > MAX_NAME_BYTES:
        raise NameRefusedError(f"A part of '{_shown(name)}' is longer than {MAX_NAME_BYTES} bytes.")


def safe_relative_path(name: str) -> PurePosixPath:
    """The path that `name` means below a folder. Raises NameRefusedError."""
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise NameRefusedError(f"'{_shown(name)}' contains a control character.")
    if "\\" in name:
        raise NameRefusedError(f"'{_shown(name)}' contains a backslash; pack with '/' in names.")
    if name.startswith("/") or _DRIVE.match(name):
        raise NameRefusedError(f"'{_shown(name)}' is an absolute path; pack with relative names.")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts:
        raise NameRefusedError(f"'{_shown(name)}' is not the name of a file.")
    if len(parts) > MAX_DEPTH:
        raise NameRefusedError(f"'{_shown(name)}' is nested deeper than {MAX_DEPTH} folders.")
    for part in parts:
        _check_component(part, name)
    if len("/".join(parts).encode()) > MAX_PATH_BYTES:
        raise NameRefusedError(f"'{_shown(name)}' is longer than {MAX_PATH_BYTES} bytes.")
    return PurePosixPath(*parts)


def is_junk(path: PurePosixPath) -> bool:
    """Leftovers of file managers, editors and git, which no model needs."""
    folders = {part.lower() for part in path.parts[:-1]}
    last = path.name.lower()
    return (
        bool(folders & _JUNK_FOLDERS)
        or last in _JUNK_FOLDERS
        or last in _JUNK_FILES
        or last.startswith("._")
    )


def check_model_name(name: str) -> str:
    """`name`, stripped, when a model may be called so. Raises NameRefusedError."""
    name = name.strip()
    if not name:
        raise NameRefusedError("Give the model a name.")
    if not _MODEL_NAME.fullmatch(name):
        raise NameRefusedError(
            f"'{_shown(name)}' cannot be a model name: use letters, digits, '_', '-' and '.', "
            "start with a letter or digit, at most 128 characters."
        )
    if name.lower() in _RESERVED_MODEL_NAMES:
        raise NameRefusedError(f"'{name}' is reserved; choose another model name.")
    return name


def is_version(name: str) -> bool:
    """Whether a folder of this name is a version: an integer without leading zeros."""
    return bool(_VERSION.fullmatch(name)) and int(name) <= MAX_VERSION


def check_version(text: str) -> int:
    """The version number `text` means. Raises NameRefusedError."""
    if not is_version(text.strip()):
        raise NameRefusedError(
            f"'{_shown(text)}' is not a version: use a whole number without leading zeros."
        )
    return int(text)


def resolve_inside(root: Path, name: str) -> Path:
    """The existing or future path `name` below `root`; links that lead out are refused."""
    path = root.joinpath(safe_relative_path(name))
    if not path.resolve().is_relative_to(root.resolve()):
        raise NameRefusedError(f"'{_shown(name)}' leads out of the folder.")
    return path


class ClashGuard:
    """Refuses two names that one file system would take for the same, and a file used as folder."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, path: PurePosixPath) -> None:
        for parent in _parents(path):
            self._add_folder(str(parent))
        text = str(path)
        key = text.casefold()
        if key in self._folders:
            raise NameRefusedError(f"'{_shown(text)}' is both a file and a folder.")
        other = self._files.get(key)
        if other is not None:
            same = "appears twice" if other == text else f"clashes with '{_shown(other)}'"
            raise NameRefusedError(f"'{_shown(text)}' {same}.")
        self._files[key] = text

    def add_folder(self, path: PurePosixPath) -> None:
        for parent in _parents(path):
            self._add_folder(str(parent))
        self._add_folder(str(path))

    def _add_folder(self, text: str) -> None:
        key = text.casefold()
        if key in self._files:
            raise NameRefusedError(f"'{_shown(text)}' is both a file and a folder.")
        other = self._folders.setdefault(key, text)
        if other != text:
            raise NameRefusedError(
                f"The folders '{_shown(other)}' and '{_shown(text)}' differ only in case."
            )


def _parents(path: PurePosixPath) -> Iterable[PurePosixPath]:
    return [parent for parent in reversed(path.parents) if parent.parts]
