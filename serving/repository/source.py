"""What is to be loaded and from where, and what the manager asks of a loader.

Plain data; `check_model_name` and `discard` are the rules on names and temporary directories.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from serving.errors import InvalidArgumentError
from serving.repository import override
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


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the files of one load come from."""

    name: str
    directory: Path
    stamp: ModelStamp
    request: LoadRequest
    is_temporary: bool = False


class PreparedModel(Protocol):
    """A model whose config has been read and found good."""

    @property
    def source(self) -> Source: ...

    @property
    def versions(self) -> Collection[int]:
        """What is to be served."""


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
    """Remove the files that came with the load request; blocking, small."""
    if source.is_temporary:
        override.remove(source.directory)
