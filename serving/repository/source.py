"""What is to be loaded and from where, and what the manager asks of a loader.

Plain data; `check_model_name` and `discard` are the rules on names and temporary directories.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from serving.errors import InvalidArgumentError
from serving.repository import override
from serving.repository.agents import AgentSession
from serving.repository.storage import ModelStamp

if TYPE_CHECKING:
    from serving.model import Model


@dataclass(frozen=True, slots=True)
class LoadRequest:
    config: str | None = None
    """JSON ModelConfig that replaces config.pbtxt for this load."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    versions: frozenset[int] | None = None
    """Serve exactly these; None: what the version policy selects."""

    @property
    def is_forced(self) -> bool:
        return self.config is not None


class RemoteFiles(Protocol):
    """Files of a source that are elsewhere; `serving.repository.cloud` has them."""

    def fetch(self, stop: threading.Event, tell: Callable[[str], None]) -> None:
        """Blocking, for long; ends soon after `stop` is set. Raises ServingError.

        `tell` gets a sentence on the progress now and then, in whatever thread.
        """

    def inherit(self, other: RemoteFiles) -> None:
        """Models go on serving out of `other`: keep its files until these are discarded."""

    def discard(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the files of one load come from."""

    name: str
    directory: Path
    stamp: ModelStamp
    request: LoadRequest
    is_temporary: bool = False
    remote: RemoteFiles | None = None
    """Brings the files into `directory` first."""
    is_renamed: bool = False
    """Its repository gives the model another name than the directory has: the config follows."""

    @property
    def origin(self) -> str:
        """For people: the directory, or where its files come from."""
        return str(self.directory if self.remote is None else self.remote)


class PreparedModel(Protocol):
    """A model whose config has been read and found good."""

    @property
    def source(self) -> Source: ...

    @property
    def versions(self) -> Collection[int]:
        """What is to be served."""

    @property
    def backend(self) -> str:
        """The backend, or the platform of what has none."""

    @property
    def parts(self) -> Collection[str]:
        """Models that must serve before this one can."""

    @property
    def agents(self) -> AgentSession | None:
        """Whom to tell what becomes of the load."""


class ModelChange(Protocol):
    """A change of a serving model that is ready to be made; `serving.instance_set` has it."""

    def commit(self) -> Coroutine[Any, Any, None]:
        """Make it. The result is to be awaited: it ends when what is surplus has closed."""

    async def abandon(self) -> None:
        """Leave the model as it is."""


PreparedT = TypeVar("PreparedT", bound=PreparedModel)


class Loader(Protocol[PreparedT]):
    """Turns files into Models; see `serving.repository.loader`."""

    def prepare(self, source: Source) -> PreparedT:
        """Blocking. Raises ServingError naming place and cause."""

    def join(self, prepared: PreparedT) -> PreparedT:
        """Loop thread, when all parts serve: what they make of the model that needs them, or the
        same object where that is what it was.

        Raises: ServingError naming what does not fit.
        """

    async def load_version(self, prepared: PreparedT, version: int, threads: Executor) -> Model:
        """Raises ServingError naming phase and cause."""

    def may_update(self, before: PreparedT, after: PreparedT, version: int) -> bool:
        """Do the two differ in nothing but what a serving model can change? REP-090."""

    async def prepare_update(
        self, prepared: PreparedT, version: int, model: Model, threads: Executor
    ) -> ModelChange:
        """Start what the serving `model` lacks of `prepared`. Raises as `load_version` does."""


def check_model_name(name: str) -> None:
    """Raises InvalidArgumentError for a name that could be no directory of a repository."""
    if not name.strip():
        raise InvalidArgumentError("model name cannot be empty")
    if "/" in name or name in (".", "..") or "\0" in name:
        raise InvalidArgumentError(
            f"invalid model name {name!r}: path traversal is not allowed, use the name of a "
            "directory in the model repository"
        )


def discard(source: Source) -> None:
    """Remove the files that were brought for the load; blocking, small."""
    if source.remote is not None:
        source.remote.discard()
    elif source.is_temporary:
        override.remove(source.directory)


def superseded(old: Source | None, new: Source, *, is_partly_kept: bool) -> Source | None:
    """What is to be discarded of `old` once the models that `new` replaces have drained."""
    if old is None or old.remote is None or not is_partly_kept:
        return old
    if new.remote is not None:
        new.remote.inherit(old.remote)
    return None
