"""SageMaker's multi-model endpoint: models that come and go with repositories of their own.

Each model is a directory that the platform has unpacked; it is registered as a repository at run
time, with the platform's name (a hash) for the model in it. Loop thread; what touches the disk goes
to the default executor. Source: spec TOOL-080, REP-069.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.config.validate_graph import is_ensemble
from serving.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ServingError,
)
from serving.repository import config_file
from serving.repository.layout import scan_repository
from serving.repository.source import check_model_name

if TYPE_CHECKING:
    from serving.server import ModelServer

_DRAIN_S = 350.0
"""How long an unload waits for requests in progress: SageMaker waits for 360 s."""
_FORBIDDEN = ("/dev", "/proc", "/sys")
_NO_MEMORY = re.compile(
    r"out of memory|outofmemory|memoryerror|bad_alloc|cannot allocate|failed to allocate"
    r"|insufficient memory|memory limit",
    re.IGNORECASE,
)


def is_out_of_memory(error: ServingError) -> bool:
    return _NO_MEMORY.search(error.message) is not None


@dataclass(frozen=True, slots=True)
class _Placed:
    root: Path
    directory: str
    """Of the model, in the repository `root`."""


class SageMakerModels:
    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._urls: dict[str, str] = {}
        """By name, from the wish to load to the end of the unload."""
        self._loaded: dict[str, Path] = {}
        """Name -> its repository."""

    def rows(self) -> list[dict[str, str]]:
        return [self._row(name) for name in sorted(self._loaded)]

    def row(self, name: str) -> dict[str, str]:
        """Raises NotFoundError."""
        self.check(name)
        return self._row(name)

    def _row(self, name: str) -> dict[str, str]:
        return {"modelName": name, "modelUrl": self._urls[name]}

    def check(self, name: str) -> None:
        """Raises NotFoundError."""
        if name not in self._loaded:
            raise NotFoundError(f"model '{name}' is not loaded: load it by POST /models")

    async def load(self, name: str, url: str) -> None:
        """Returns when it is READY. Raises AlreadyExistsError, and what a load raises."""
        check_model_name(name)
        repositories = self._server.repositories()
        if name in self._urls:
            raise AlreadyExistsError(f"model '{name}' is loaded already, from {self._urls[name]}")
        self._urls[name] = url
        try:
            placed = await asyncio.to_thread(_find, url)
            repositories.register(placed.root, {placed.directory: name})
            try:
                await self._server.load_model(name)
            except BaseException:
                repositories.unregister(placed.root)
                raise
        except BaseException:
            del self._urls[name]
            raise
        self._loaded[name] = placed.root

    async def unload(self, name: str) -> None:
        """Returns when its requests have ended. Raises NotFoundError."""
        self.check(name)
        repositories = self._server.repositories()
        root = self._loaded.pop(name)
        try:
            await self._server.unload_model(name, unload_dependents=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._server.settled(), _DRAIN_S)
        finally:
            repositories.unregister(root)
            del self._urls[name]


def _find(url: str) -> _Placed:
    """The model in the repository that the platform has put at `url`: the ensemble among several,
    else the first by name. Blocking. Raises InvalidArgumentError.
    """
    path = Path(url)
    if not path.is_absolute() or _is_forbidden(path):
        raise InvalidArgumentError(
            f"'url' must be the absolute path of a directory, not below {', '.join(_FORBIDDEN)}; "
            f"got '{url}'"
        )
    names = [model.name for model in scan_repository(path)]
    if not names:
        raise InvalidArgumentError(
            f"'{url}' holds no model: a directory with one is expected in it"
        )
    heads = [name for name in names if len(names) > 1 and _is_ensemble(path / name)]
    return _Placed(path, (heads or names)[0])


def _is_forbidden(path: Path) -> bool:
    real = path.resolve()
    return any(
        place in (str(item), *map(str, item.parents))
        for item in (path, real)
        for place in _FORBIDDEN
    )


def _is_ensemble(directory: Path) -> bool:
    config = config_file.read(directory, None).config
    return config is not None and is_ensemble(config)
