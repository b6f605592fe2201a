"""The cloud repositories of one server: made from its options, with one cache for each directory.

Made on the loop without touching disk or network; `check` and what a root does later block and run
in loading threads. Source: spec REP-103, REP-104.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from serving.errors import InvalidArgumentError, ServingError
from serving.options import CloudOptions
from serving.repository.cloud import url as cloud_url
from serving.repository.cloud.cache import TAG, BlobCache
from serving.repository.cloud.credentials import Credentials
from serving.repository.cloud.root import CloudRoot, ReadConfig
from serving.repository.cloud.session import Session
from serving.repository.cloud.store import ObjectStore
from serving.repository.cloud.url import CloudUrl

logger = logging.getLogger(__name__)

MOUNTS = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}
CREDENTIAL_PATH = "TRITON_CLOUD_CREDENTIAL_PATH"


class CloudRepositories:
    def __init__(
        self,
        options: CloudOptions,
        *,
        read_config: ReadConfig,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._options = options
        self._environment = os.environ if environment is None else environment
        told = self._environment.get(CREDENTIAL_PATH)
        path = options.credential_path or (Path(told) if told else None)
        self._credentials = Credentials(path, self._environment)
        self._read_config = read_config
        self._lock = threading.Lock()
        self._caches: dict[Path, tuple[BlobCache, Session]] = {}

    def root(self, text: str) -> CloudRoot:
        """Raises InvalidArgumentError for a URL that is none of ours."""
        url = cloud_url.parse(text)
        store = ObjectStore(url, self._credentials, timeout_s=self._options.timeout_secs)
        return CloudRoot(
            store,
            lambda: self._cache(url),
            read_config=self._read_config,
        )

    def check(self, root: CloudRoot, *, may_be_absent: bool) -> None:
        """Is the repository there, and a place for what comes from it?

        Raises: ServingError; with `may_be_absent` a store that does not answer is logged only.
        """
        self._cache(root.url)
        try:
            root.check()
        except ServingError as error:
            if not may_be_absent:
                raise
            logger.error("%s; the server starts without its models", error.message)

    def close(self) -> None:
        """Remove the directories of loaded models; what is cached stays, within its limit."""
        with self._lock:
            for cache, session in self._caches.values():
                session.close()
                cache.trim()
            self._caches.clear()

    def _cache(self, url: CloudUrl) -> tuple[BlobCache, Session]:
        directory = self._directory(url.scheme)
        with self._lock:
            if directory not in self._caches:
                cache = BlobCache(directory, self._options.cache_byte_size)
                self._caches[directory] = (cache, Session(directory))
            return self._caches[directory]

    def _directory(self, scheme: str) -> Path:
        mount = self._environment.get(MOUNTS[scheme])
        if mount:
            path = Path(mount)
            _check_mount(path, MOUNTS[scheme])
            return path
        if self._options.cache_directory is not None:
            return self._options.cache_directory
        base = self._environment.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "conch" / "models"


def _check_mount(path: Path, variable: str) -> None:
    """As tritonserver has it: there already, and empty but for our own cache."""
    if not path.is_dir():
        raise InvalidArgumentError(
            f"{variable} is '{path}', which is no directory; create it, or unset the variable"
        )
    if any(path.iterdir()) and not (path / TAG).exists():
        raise InvalidArgumentError(
            f"{variable} is '{path}', which is not empty; name a directory for this alone"
        )
