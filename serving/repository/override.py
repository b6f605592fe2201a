"""The files of a load request as a temporary model directory, confined to that directory.

The one place where names chosen by a client become paths. Blocking; runs in loading threads. The
directory lives as long as its models do and is removed with `remove`. Source: spec REP-060.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from serving.errors import InvalidArgumentError

_MOST_FILES = 10_000


def write_override(files: Mapping[str, bytes]) -> Path:
    """Write `files` (path relative to the model directory -> content) below a new directory.

    Raises: InvalidArgumentError for a path that would leave the directory, that is a directory to
    another one, or that the file system refuses. Nothing is left behind then.
    """
    if len(files) > _MOST_FILES:
        raise InvalidArgumentError(
            f"model file override has {len(files)} files, at most {_MOST_FILES} are allowed"
        )
    paths = {name: _checked(name) for name in files}
    root = Path(tempfile.mkdtemp(prefix="conch-override-"))
    try:
        for name, content in files.items():
            _write(root, paths[name], content)
    except BaseException:
        remove(root)
        raise
    return root


def remove(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)


def _checked(name: str) -> PurePosixPath:
    parts = name.split("/")
    refused = ("", ".", "..")
    if any(part in refused for part in parts) or "\\" in name or "\0" in name:
        raise InvalidArgumentError(
            f"model file override '{_shown(name)}' must be a path inside the model directory, as "
            "in '1/model.onnx': no leading or doubled '/', no '.', no '..'"
        )
    return PurePosixPath(*parts)


def _write(root: Path, relative: PurePosixPath, content: bytes) -> None:
    target = root / relative
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The directory is new and ours, so there is no link to follow; "x" refuses a second write.
        with target.open("xb") as file:
            file.write(content)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise InvalidArgumentError(
            f"model file override '{_shown(str(relative))}' names something that is a file and a "
            "directory at once"
        ) from None
    except (OSError, UnicodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "not a valid file name"
        raise InvalidArgumentError(
            f"model file override '{_shown(str(relative))}' cannot be written: {cause}"
        ) from None


def _shown(name: str) -> str:
    printable = name.encode("unicode_escape", "backslashreplace").decode("ascii")
    return printable if len(printable) <= 200 else f"{printable[:200]}..."
