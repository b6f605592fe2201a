"""What lies in the model repositories: where a model is, and a stamp that tells when it changed.

Stateless but for a cache of directory listings. The functions block and run in loading threads;
`RootListing.names` is one stat for each root and may run on the loop. Local file systems for now.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving.errors import InvalidArgumentError
from serving.repository.layout import is_directory, version_problem

logger = logging.getLogger(__name__)

FileStamp = tuple[str, int, int]
"""Path relative to the model directory, mtime in ns, size."""

_STAMP_STEP_NS = 2_000_000_000
"""Two changes nearer than this may carry one mtime, on coarse file systems at least."""

_NEVER = -1

_UNSTAMPED = frozenset({"__pycache__"})
"""Written by running models themselves, so no sign of an edit."""


@dataclass(frozen=True, slots=True)
class ModelStamp:
    """Equal stamps: nothing that a load reads has changed in between."""

    directory: Path
    common: tuple[FileStamp, ...] = ()
    """Files outside version directories: config.pbtxt, labels, warm-up data, stray ones too."""
    versions: Mapping[int, tuple[FileStamp, ...]] = field(default_factory=dict)

    def is_same_version(
        self, other: ModelStamp, version: int, *, but_for: Collection[str] = ()
    ) -> bool:
        """`but_for`: paths of common files that may differ."""
        return (
            self.directory == other.directory
            and self._common(but_for) == other._common(but_for)
            and self.versions.get(version) == other.versions.get(version)
        )

    def _common(self, but_for: Collection[str]) -> tuple[FileStamp, ...]:
        return tuple(stamp for stamp in self.common if stamp[0] not in but_for)


def stamp_model(directory: Path) -> ModelStamp:
    """Stamp every file below `directory`. A file that vanishes meanwhile counts as absent."""
    common: list[FileStamp] = []
    versions: dict[int, list[FileStamp]] = {}
    for relative, stat in sorted(_walk(directory), key=lambda item: item[0]):
        version = version_number(relative.split(os.sep, 1)[0])
        target = common if version is None else versions.setdefault(version, [])
        if stat is not None:
            target.append((relative, stat.st_mtime_ns, stat.st_size))
    return ModelStamp(
        directory, tuple(common), {key: tuple(value) for key, value in versions.items()}
    )


def version_number(name: str) -> int | None:
    """The version that a directory name stands for; None for `01`, `abc`, `-1`. REP-004."""
    return None if version_problem(name) else int(name)


def check_root(root: Path) -> None:
    """Raises InvalidArgumentError unless `root` is a readable directory. REP-001."""
    if not root.is_dir():
        raise InvalidArgumentError(
            f"model repository '{root}' is not a valid directory: create it, or name another one"
        )
    if not os.access(root, os.R_OK | os.X_OK):
        raise InvalidArgumentError(
            f"model repository '{root}' cannot be read: give this user read and search permission"
        )


class RootListing:
    """Names of the models in several roots, read again only when a root's own mtime moved."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots: dict[Path, Mapping[str, str]] = {root: {} for root in roots}
        self._cache: dict[Path, tuple[int, frozenset[str]]] = {}

    def __contains__(self, root: Path) -> bool:
        return root in self._roots

    def add(self, root: Path, names: Mapping[str, str]) -> None:
        """`names`: directory -> name of the model, where that is not the directory's own."""
        self._roots[root] = dict(names)

    def remove(self, root: Path) -> None:
        del self._roots[root]
        self._cache.pop(root, None)

    def names(self, *, strict: bool = False) -> dict[str, list[Path]]:
        """Model name -> its directories, one for each root that has it.

        A root that cannot be read counts as it was at the last look; `strict` raises OSError.
        """
        found: dict[str, list[Path]] = {}
        for root, renamed in list(self._roots.items()):
            for entry in self._names_in(root, strict):
                found.setdefault(renamed.get(entry, entry), []).append(root / entry)
        return dict(sorted(found.items()))

    def find(self, name: str) -> list[Path]:
        """Directories of one model, looked up afresh."""
        if name.startswith("."):
            return []
        places = []
        for root, renamed in list(self._roots.items()):
            own = [entry for entry, given in renamed.items() if given == name]
            places += [root / entry for entry in own or [name] if renamed.get(entry, name) == name]
        # os.path.isdir says no to a name that the file system cannot even hold; Path.is_dir raises.
        return [place for place in places if os.path.isdir(place)]

    def stamps(self, served: Mapping[str, Path]) -> tuple[dict[str, ModelStamp], list[str]]:
        """Stamps of all models, and the names that lie in several roots.

        Of a doubled model the copy counts that `served` names, so that it goes on serving. Blocks.
        Raises: OSError when a root cannot be read.
        """
        found: dict[str, ModelStamp] = {}
        duplicates: list[str] = []
        for name, places in self.names(strict=True).items():
            place = places[0]
            if len(places) > 1:
                duplicates.append(name)
                if name not in served:
                    continue
                place = served[name]
            found[name] = stamp_model(place)
        return found, duplicates

    def _names_in(self, root: Path, strict: bool) -> frozenset[str]:
        cached = self._cache.get(root)
        try:
            mtime_ns = root.stat().st_mtime_ns
            if cached is not None and cached[0] == mtime_ns:
                return cached[1]
            with os.scandir(root) as entries:
                names = frozenset(item.name for item in entries if _is_model_entry(item))
        except OSError:
            if strict:
                raise
            return frozenset() if cached is None else cached[1]
        # A directory that changed this moment may change again under the same time stamp.
        is_settled = time.time_ns() - mtime_ns > _STAMP_STEP_NS
        self._cache[root] = (mtime_ns if is_settled else _NEVER, names)
        return names


def _is_model_entry(item: os.DirEntry[str]) -> bool:
    if item.name.startswith(".") or not is_directory(item):
        return False
    try:
        item.name.encode()
    except UnicodeEncodeError:
        logger.warning("ignored %r: a model's name must be UTF-8 text; rename it", item.path)
        return False
    return True


def _walk(directory: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Relative path and stat of every file; a directory yields its own path with None.

    Follows links (mounted volumes are full of them), each real directory once.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        try:
            entries = list(os.scandir(directory / relative))
        except OSError:
            continue
        for entry in entries:
            path = os.path.join(relative, entry.name)
            try:
                stat = entry.stat()
                if not entry.is_dir():
                    yield path, stat
                    continue
            except OSError:
                continue
            identity = (stat.st_dev, stat.st_ino)
            if entry.name not in _UNSTAMPED and identity not in seen:
                seen.add(identity)
                waiting.append(path)
                yield path, None
