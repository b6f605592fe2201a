"""Model namespacing: each repository keeps its models to itself, whatever their names.

`Namespaces` answers for several lifecycles what one `Lifecycle` answers for itself; `Repositories`
does the same for managers. A name that lies in several namespaces is refused where one model is
meant, and stands for all of them in load and unload. Loop thread only. Source: spec REP-011.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.errors import InvalidArgumentError, ServingError, UnsupportedError
from serving.repository.lifecycle import Lifecycle
from serving.repository.manager import RepositoryManager
from serving.repository.source import LoadRequest, check_model_name
from serving.repository.states import IndexEntry

if TYPE_CHECKING:
    from serving.model import Model


class Namespaces:
    """What is routed and known, over all namespaces."""

    def __init__(self, names: Iterable[str], on_change: Callable[[IndexEntry], None]) -> None:
        self.lifecycles = {name: Lifecycle(on_change, namespace=name) for name in names}

    def __repr__(self) -> str:
        return f"<Namespaces {self.lifecycles}>"

    def resolve(self, name: str, version: int = -1, *, namespace: str = "") -> Model:
        """`namespace`: where to look first, as the parts of an ensemble do.

        Raises: InvalidArgumentError for a name that is unknown, or known in several namespaces.
        """
        own = self.lifecycles.get(namespace)
        if own is not None and own.is_known(name):
            return own.resolve(name, version)
        return self._owner(name).resolve(name, version)

    def _owner(self, name: str) -> Lifecycle:
        owners = [item for item in self.lifecycles.values() if item.is_known(name)]
        if len(owners) == 1:
            return owners[0]
        if not owners:
            raise InvalidArgumentError(f"Request for unknown model: '{name}' is not found")
        where = ", ".join(
            namespace for namespace, item in self.lifecycles.items() if item in owners
        )
        raise InvalidArgumentError(
            f"there are {len(owners)} models '{name}', model namespace must be provided to resolve "
            f"ambiguity, which requests cannot do: rename all but one (they are in {where})"
        )

    def sequence_holder(self, name: str, version: int, correlation_id: int | str) -> Model | None:
        found = (
            item.sequence_holder(name, version, correlation_id) for item in self.lifecycles.values()
        )
        return next(filter(None, found), None)

    def finishing_sequences(self, name: str, version: int) -> Model | None:
        found = (item.finishing_sequences(name, version) for item in self.lifecycles.values())
        return next(filter(None, found), None)

    def is_known(self, name: str) -> bool:
        return any(item.is_known(name) for item in self.lifecycles.values())

    def ready_versions(self, name: str) -> list[int]:
        return self._owner(name).ready_versions(name)

    def ready_models(self, name: str = "") -> list[Model]:
        """Sorted by namespace, name and version."""
        if name:
            return self._owner(name).ready_models(name)
        return [model for item in self.lifecycles.values() for model in item.ready_models()]

    def all_models(self) -> list[Model]:
        return [model for item in self.lifecycles.values() for model in item.all_models()]

    def entries(self, name: str = "") -> Iterator[IndexEntry]:
        for item in self.lifecycles.values():
            yield from item.entries(name)

    def is_serving_everything(self) -> bool:
        return all(item.is_serving_everything() for item in self.lifecycles.values())

    def note_fetch(self, name: str, told: str) -> None:
        for item in self.lifecycles.values():
            item.note_fetch(name, told)


class Repositories:
    """The managers of a server: one for each namespace, or a single one without namespacing."""

    def __init__(self, managers: Sequence[RepositoryManager]) -> None:
        self.managers = list(managers)
        for manager in self.managers:
            manager.meet([item for item in self.managers if item is not manager])

    def register(self, root: Path, names: Mapping[str, str]) -> None:
        """One more directory with models, from now on; `names`: directory -> name of the model.

        Raises: UnsupportedError with namespaces; AlreadyExistsError, InvalidArgumentError. REP-069.
        """
        if len(self.managers) > 1:
            raise UnsupportedError(
                f"cannot register model repository '{root}': with --model-namespacing, only those "
                "of the start are served"
            )
        self.managers[0].roots.register(root, names)

    def unregister(self, root: Path) -> None:
        """Raises NotFoundError. Unload what it has brought first."""
        for manager in self.managers:
            manager.roots.unregister(root)

    async def load(self, name: str, request: LoadRequest | None = None) -> None:
        """In every namespace that has the model. Raises the first ServingError of them."""
        check_model_name(name)
        owners = await self._owners(name)
        await _all_of([manager.load(name, request) for manager in owners or self.managers[:1]])

    async def load_all(self, names: Iterable[str] | None = None) -> dict[str, ServingError]:
        """What failed and why, by name."""
        failed: dict[str, ServingError] = {}
        if names is None:
            for result in await asyncio.gather(*(item.load_all() for item in self.managers)):
                failed |= result
            return failed

        async def attempt(name: str) -> None:
            try:
                await self.load(name)
            except ServingError as error:
                failed[name] = error

        await asyncio.gather(*(attempt(name) for name in dict.fromkeys(names)))
        return failed

    async def unload(
        self, name: str, version: int | None = None, *, with_parts: bool = False
    ) -> None:
        check_model_name(name)
        knowing = [manager for manager in self.managers if manager.is_known(name)]
        await _all_of([manager.unload(name, version, with_parts=with_parts) for manager in knowing])

    def index(self, *, ready_only: bool = False) -> list[IndexEntry]:
        rows = [row for item in self.managers for row in item.index(ready_only=ready_only)]
        return sorted(rows, key=lambda row: row.name) if len(self.managers) > 1 else rows

    async def close(self, timeout_s: float) -> bool:
        return all(await asyncio.gather(*(item.close(timeout_s) for item in self.managers)))

    async def settled(self) -> None:
        await asyncio.gather(*(item.settled() for item in self.managers))

    async def _owners(self, name: str) -> list[RepositoryManager]:
        if len(self.managers) == 1:
            return self.managers
        has = await asyncio.gather(*(manager.has(name) for manager in self.managers))
        return [manager for manager, it_has in zip(self.managers, has, strict=True) if it_has]


async def _all_of(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All to their end; then the first failure, if there is one."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
