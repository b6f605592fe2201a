"""Who goes on with a sequence that has begun: not always the model that answers new requests.

A sequence stays with the version that it began on when a newer one becomes the default, and with a
model that drains until it ends there. Loop thread only. Source: spec SCH-069, REP-072, REP-083.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.model import Model


class SequenceHolders:
    """Of one lifecycle."""

    def __init__(self) -> None:
        self._leaving: dict[str, list[weakref.ref[Model]]] = {}
        """By name, the latest last; a model that has closed has no sequences and is forgotten."""

    def __repr__(self) -> str:
        return f"<SequenceHolders {sum(map(len, self._leaving.values()))} leaving>"

    def note_leaving(self, name: str, model: Model) -> None:
        """`model` gets no new requests from now on."""
        others = [item for item in self._leaving.get(name, ()) if item() is not None]
        self._leaving[name] = [*others, weakref.ref(model)]

    def find(
        self, name: str, version: int, correlation_id: int | str, ready: Mapping[int, Model]
    ) -> Model | None:
        """The model where the sequence has begun and not ended; None when there is none.

        `ready`: what serves now under this name. `version`: -1 for any.
        """
        for model in self._candidates(name, ready):
            if version in (-1, model.version) and model.serves_sequence(correlation_id):
                return model
        return None

    def finishing(self, name: str, version: int, ready: Mapping[int, Model]) -> Model | None:
        """The first that has open sequences; `ready` and `version` as above."""
        for model in self._candidates(name, ready):
            usage = model.slot_usage
            if version in (-1, model.version) and usage is not None and usage.is_open:
                return model
        return None

    def _candidates(self, name: str, ready: Mapping[int, Model]) -> list[Model]:
        """What serves, the newest first; then those on their way out, the latest first."""
        leaving = [item() for item in reversed(self._leaving.get(name, ()))]
        serving = [ready[number] for number in sorted(ready, reverse=True)]
        return serving + [model for model in leaving if model is not None]
