"""All repositories of a server as one: directories of this machine and buckets of others.

`names` runs on the loop; everything else blocks and runs in loading threads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from serving.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ServingError,
)
from serving.repository.cloud.root import CloudRoot
from serving.repository.source import LoadRequest, Source
from serving.repository.states import DUPLICATE
from serving.repository.storage import ModelStamp, RootListing, check_root, stamp_model

logger = logging.getLogger(__name__)


class Roots:
    def __init__(self, roots: Collection[Path | CloudRoot]) -> None:
        self._roots = tuple(roots)
        self._local = RootListing([root for root in roots if isinstance(root, Path)])
        self._cloud = [root for root in roots if isinstance(root, CloudRoot)]

    def register(self, root: Path, names: Mapping[str, str]) -> None:
        """One more directory with models; `names`: directory -> name of the model. Blocking.

        Raises: AlreadyExistsError, InvalidArgumentError. Source: spec REP-069.
        """
        check_root(root)
        if root in self._local:
            raise AlreadyExistsError(f"model repository '{root}' has already been registered")
        self._local.add(root, names)

    def unregister(self, root: Path) -> None:
        """Models that it has brought stay as they are. Raises NotFoundError."""
        if root not in self._local:
            raise NotFoundError(f"model repository '{root}' has not been registered")
        self._local.remove(root)

    def names(self) -> dict[str, list[Path]]:
        """Model name -> its places, one for each root that has it; see `RootListing.names`."""
        found = self._local.names()
        if not self._cloud:
            return found
        for root in self._cloud:
            for name in root.names():
                found.setdefault(name, []).append(root.place(name))
        return dict(sorted(found.items()))

    def has(self, name: str) -> bool:
        return bool(self._local.find(name)) or any(root.has(name) for root in self._cloud)

    def source(self, name: str, request: LoadRequest) -> Source:
        """Where a load takes its files from, looked up afresh.

        Raises: InvalidArgumentError when no root has the model, or several do; ServingError when
        a store that might have it cannot be asked.
        """
        found = [
            Source(name, place, stamp_model(place), request, is_renamed=place.name != name)
            for place in self._local.find(name)
        ]
        fault: ServingError | None = None
        for root in self._cloud:
            try:
                source = root.source(name, request)
            except ServingError as error:
                fault = error
                continue
            if source is not None:
                found.append(source)
        if not found:
            if fault is not None:
                raise fault
            roots = ", ".join(str(root) for root in self._roots)
            raise InvalidArgumentError(
                f"failed to load '{name}', failed to poll from model repository: there is no "
                f"directory '{name}' in {roots}"
            )
        if len(found) > 1:
            where = ", ".join(source.origin for source in found)
            raise InvalidArgumentError(f"{DUPLICATE}: '{name}' is {where}; remove all but one")
        if fault is not None:
            logger.warning("%s; model '%s' is taken from elsewhere", fault.message, name)
        return found[0]

    def stamps(self, served: Mapping[str, Path]) -> tuple[dict[str, ModelStamp], list[str]]:
        """See `RootListing.stamps`; `served` tells the place of each model."""
        found, duplicates = self._local.stamps(served)
        for root in self._cloud:
            for name, stamp in root.stamps().items():
                other = found.get(name)
                if other is None and name not in duplicates:
                    found[name] = stamp
                    continue
                duplicates.append(name)
                place = served.get(name)
                if place == stamp.directory:
                    found[name] = stamp
                elif other is not None and place != other.directory:
                    del found[name]
        return found, list(dict.fromkeys(duplicates))
