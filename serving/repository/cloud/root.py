"""A cloud repository as the manager sees it: names, stamps, and sources that bring their files.

`names` answers at once from the last listing and may run on the loop; an old listing is renewed in
the background. Everything else blocks and runs in loading threads. Source: spec REP-104, REP-105.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError, ServingError, UnavailableError
from serving.repository.cloud.cache import BlobCache
from serving.repository.cloud.download import Download, OnProgress
from serving.repository.cloud.session import Session
from serving.repository.cloud.store import ObjectStore, RemoteFile
from serving.repository.cloud.url import CloudUrl
from serving.repository.source import LoadRequest, RemoteFiles, Source
from serving.repository.storage import FileStamp, ModelStamp, version_number
from serving.repository.version_policy import select_versions

logger = logging.getLogger(__name__)

ReadConfig = Callable[[Path, str | None], pb.ModelConfig]
"""(model directory, config override) -> the config. Raises ServingError."""

_LISTING_LIVES_S = 15.0


class CloudRoot:
    def __init__(
        self,
        store: ObjectStore,
        cache: Callable[[], tuple[BlobCache, Session]],
        *,
        read_config: ReadConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = store.url
        self._store = store
        self._cache = cache
        self._read_config = read_config
        self._clock = clock
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()
        self._stamps: dict[str, ModelStamp] = {}
        self._listed_at: float | None = None
        self._is_renewing = False

    def __str__(self) -> str:
        return str(self.url)

    def check(self) -> None:
        """Raises ServingError when the repository cannot be listed."""
        self._list_names()

    def names(self) -> frozenset[str]:
        with self._lock:
            is_old = self._listed_at is None or self._clock() - self._listed_at > _LISTING_LIVES_S
            if is_old and not self._is_renewing:
                self._is_renewing = True
                threading.Thread(target=self._renew, name="cloud-listing", daemon=True).start()
            return self._names

    def has(self, name: str) -> bool:
        """Looked up afresh; while the store cannot be reached, as it was at the last look."""
        try:
            return bool(self._store.files(self.url.child(name)))
        except ServingError as error:
            logger.warning("%s", error.message)
            return name in self._names

    def place(self, name: str) -> Path:
        """Stands for the model; equal for equal models, and no path of this machine."""
        return _identity(self.url.child(name))

    def source(self, name: str, request: LoadRequest) -> Source | None:
        """None: there is no such model. Nothing is downloaded yet. Raises ServingError."""
        if name.startswith("."):
            return None
        url = self.url.child(name)
        files = self._store.files(url)
        if not files:
            return None
        stamp = _stamp(_identity(url), files)
        with self._lock:
            self._names |= {name}
            self._stamps = {**self._stamps, name: stamp}
        _, session = self._cache()
        directory = session.place_for(name)
        remote = RemoteModel(self, name, request, files=files, directory=directory)
        return Source(name, directory, stamp, request, is_temporary=True, remote=remote)

    def stamps(self) -> dict[str, ModelStamp]:
        """By model. While the store cannot be reached, what was there at the last look."""
        try:
            files = self._store.files(self.url, must_exist=True)
        except ServingError as error:
            logger.warning("poll: %s; its models stay as they are", error.message)
            return self._stamps
        by_model: dict[str, list[RemoteFile]] = {}
        for file in files:
            name, slash, rest = file.path.partition("/")
            if slash and not name.startswith("."):
                inside = RemoteFile(rest, file.key, file.size, file.modified_ns, file.etag)
                by_model.setdefault(name, []).append(inside)
        with self._lock:
            self._stamps = {
                name: _stamp(self.place(name), inside) for name, inside in by_model.items()
            }
            self._names = frozenset(by_model)
            self._listed_at = self._clock()
        return self._stamps

    def download(self, model: RemoteModel, stop: threading.Event, on_progress: OnProgress) -> None:
        """Raises ServingError; nothing is left outside the cache then."""
        cache, _ = self._cache()

        download = Download(self._store, cache, str(model), stop, on_progress)

        def bring(files: Iterable[RemoteFile]) -> None:
            _make_directories(model, files)
            wanted = [file for file in files if file.size]
            download.run(wanted, lambda file, blob: _put(cache, model, file, blob))

        model.directory.mkdir(parents=True, exist_ok=True)
        bring([file for file in model.files if _version_of(file) is None])
        versions = self._chosen(model)
        bring([file for file in model.files if _version_of(file) in versions])
        download.log_end()

    def _chosen(self, model: RemoteModel) -> Collection[int]:
        """What the load is going to ask for; a model of many versions need not come whole."""
        available = model.versions
        wanted = model.request.versions
        if wanted is not None:
            return wanted & available if wanted <= available else available
        try:
            config = self._read_config(model.directory, model.request.config)
        except ServingError:
            return ()  # The load is about to say what is wrong with it.
        if config.model_repository_agents.agents:
            return available  # An agent may look at everything; the checksum of any file, say.
        return frozenset(select_versions(config.version_policy, available))

    def _list_names(self) -> None:
        names = frozenset(self._store.names())
        with self._lock:
            self._names = names
            self._listed_at = self._clock()

    def _renew(self) -> None:
        try:
            self._list_names()
        except ServingError as error:
            logger.warning("%s", error.message)
            with self._lock:
                self._listed_at = self._clock()
        finally:
            with self._lock:
                self._is_renewing = False


class RemoteModel:
    """The files of one load, on their way. See `serving.repository.source.RemoteFiles`."""

    def __init__(
        self,
        root: CloudRoot,
        name: str,
        request: LoadRequest,
        *,
        files: list[RemoteFile],
        directory: Path,
    ) -> None:
        self._root = root
        self.name = name
        self.request = request
        self.files = files
        self.directory = directory
        self._heirlooms: list[RemoteFiles] = []

    def __str__(self) -> str:
        return str(self._root.url.child(self.name))

    @property
    def versions(self) -> frozenset[int]:
        return frozenset(
            version for file in self.files if (version := _version_of(file)) is not None
        )

    def fetch(self, stop: threading.Event, tell: Callable[[str], None]) -> None:
        """Blocks, minutes for a large model. Raises ServingError."""
        try:
            self._root.download(self, stop, lambda progress: tell(str(progress)))
        except OSError as error:
            raise UnavailableError(f"{self} cannot be brought here: {error}") from error

    def inherit(self, other: RemoteFiles) -> None:
        self._heirlooms.append(other)

    def discard(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.directory.parent.rmdir()
        while self._heirlooms:
            self._heirlooms.pop().discard()


def _make_directories(model: RemoteModel, files: Iterable[RemoteFile]) -> None:
    """Directories, those that only a placeholder stands for too, and empty files."""
    for file in files:
        path = model.directory / file.path
        directory = path if file.path.endswith("/") else path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not file.size and directory != path:
                path.touch(exist_ok=False)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _both(model, file) from error


def _put(cache: BlobCache, model: RemoteModel, file: RemoteFile, blob: Path) -> None:
    try:
        cache.link(blob, model.directory / file.path)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _both(model, file) from error


def _both(model: RemoteModel, file: RemoteFile) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"model '{model.name}': '{file.path.rstrip('/')}' is the name of an object and of a "
        "directory at once; rename one of them in the store"
    )


def _version_of(file: RemoteFile) -> int | None:
    first, slash, _ = file.path.partition("/")
    return version_number(first) if slash else None


def _stamp(place: Path, files: Iterable[RemoteFile]) -> ModelStamp:
    common: list[FileStamp] = []
    versions: dict[int, list[FileStamp]] = {}
    for file in files:
        version = _version_of(file)
        target = common if version is None else versions.setdefault(version, [])
        if not file.path.endswith("/"):
            target.append((file.path, file.stamp, file.size))
    return ModelStamp(place, tuple(common), {key: tuple(value) for key, value in versions.items()})


def _identity(url: CloudUrl) -> Path:
    return Path(os.sep, "cloud", url.scheme, url.endpoint or url.account or "-", url.key)
