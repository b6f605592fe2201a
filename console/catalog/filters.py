"""The filters of the models list: they live in the URL, so that a view can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from console.core.choices import ModelState


@dataclass(frozen=True, slots=True)
class ModelFilters:
    search: str = ""
    state: str = ""
    backend: str = ""
    worker: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self:
        """From a query string; a state that does not exist filters nothing."""
        state = parameters.get("state", "")
        return cls(
            search=parameters.get("q", "").strip(),
            state=state if state in ModelState.values else "",
            backend=parameters.get("backend", ""),
            worker=parameters.get("worker", ""),
        )

    @property
    def is_active(self) -> bool:
        return bool(self.search or self.state or self.backend or self.worker)

    def accepts(self, *, name: str, state: str, backend: str, worker_ids: list[str]) -> bool:
        return (
            all(word in name.lower() for word in self.search.lower().split())
            and self.state in ("", state)
            and self.backend in ("", backend)
            and (not self.worker or self.worker in worker_ids)
        )
