"""Models that get no more requests and have not closed yet. Loop thread only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from serving.errors import UnavailableError

if TYPE_CHECKING:
    from serving.model import Model

logger = logging.getLogger(__name__)

_KILL_S = 2.0
"""For processes to go that were killed because the server could not wait."""


class Drains:
    def __init__(self) -> None:
        self._models: set[Model] = set()

    def __repr__(self) -> str:
        return f"<Drains {sorted(model.name for model in self._models)}>"

    async def close(self, models: Iterable[Model]) -> None:
        """Drain them side by side, within the drain timeout of each. Raises nothing."""
        models = list(models)
        self._models.update(models)
        try:
            closed = await asyncio.gather(
                *(model.drain_and_close() for model in models), return_exceptions=True
            )
        finally:
            self._models.difference_update(models)
        for result in closed:
            if isinstance(result, Exception):
                logger.error("a model failed while it was closed", exc_info=result)

    async def abandon_all(self, timeout_s: float, waiting: Collection[asyncio.Task[Any]]) -> None:
        """The exit timeout is over: everyone gets an answer now. `waiting`: tasks that drain."""
        logger.warning(
            "exit timeout of %g s expired with %d requests unfinished",
            timeout_s,
            sum(model.inflight_count for model in self._models),
        )
        for model in list(self._models):
            model.abandon(
                UnavailableError(
                    f"server is stopping, and the request to model '{model.name}' did not finish "
                    f"within the exit timeout of {timeout_s:g} s; send it again to another server"
                )
            )
        await asyncio.wait(waiting, timeout=_KILL_S)
