"""Where the code of a backend may lie, and in which order it is looked for. Pure but for looking at
files; any thread.

Of a backend B, `libconch_B.so`, `libtriton_B.so` or `conch_B.py` is looked for in the version
folder, then in the model folder, then in <backend-directory>/B; the config's `runtime` gives
another file name. After that come a `model.py` in <backend-directory>/B (a Python-based backend),
the entry points of installed packages, and what is built in. Source: spec area 4.2, BE-010,
CFG-004.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError

PYTHON_RUNTIME = "model.py"
FILES = ("libconch_{}.so", "libtriton_{}.so", "conch_{}.py")
"""Names of a backend's file; in one folder the first one is tried first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A backend, as a model asks for it."""

    name: str
    runtime: str = ""
    version_directory: Path | None = None

    @property
    def usual_files(self) -> tuple[str, ...]:
        return tuple(pattern.format(self.name) for pattern in FILES)

    @property
    def names_a_file(self) -> bool:
        """The config asks for one file, and nothing else will do."""
        return self.runtime not in ("", PYTHON_RUNTIME, *self.usual_files)

    def files(self) -> tuple[str, ...]:
        """Raises: InvalidArgumentError for a `runtime` that is no plain file name."""
        if self.runtime == "":
            return self.usual_files
        if self.runtime == PYTHON_RUNTIME:
            return ()
        if escapes(self.runtime) or Path(self.runtime).name != self.runtime:
            raise InvalidArgumentError(
                f"runtime '{self.runtime}' lies outside the backend directory: give the name of a "
                "file there, without a folder"
            )
        return (self.runtime,)


def places(wanted: Wanted, backend_directory: Path | None) -> list[Path]:
    """Folders, the first one that has the file wins."""
    found = []
    if wanted.version_directory is not None:
        found = [wanted.version_directory, wanted.version_directory.parent]
    if backend_directory is not None and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", wanted.name):
        found.append(backend_directory / wanted.name)
    return found


def find_files(wanted: Wanted, backend_directory: Path | None) -> list[Path]:
    """Every file that could be the backend, in order of search. Raises: InvalidArgumentError."""
    names = wanted.files()
    return [
        folder / name
        for folder in places(wanted, backend_directory)
        for name in names
        if _is_file(folder / name)
    ]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name longer than any file's
        return False


def python_based(backend_directory: Path | None) -> dict[str, Path]:
    """Name -> folder of the backend directory whose model.py serves many models (BE-010)."""
    if backend_directory is None:
        return {}
    return {path.parent.name: path.parent for path in backend_directory.glob("*/model.py")}


def files_in(backend_directory: Path | None) -> dict[str, Path]:
    """Name -> file, of the backends that the backend directory holds as files."""
    if backend_directory is None or not backend_directory.is_dir():
        return {}
    found = {}
    for folder in sorted(backend_directory.iterdir()):
        for pattern in reversed(FILES):
            path = folder / pattern.format(folder.name)
            if path.is_file():
                found[folder.name] = path
    return found
