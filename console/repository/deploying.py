"""What the repository needs of deployments, which are built on it: they register here at start.

Calls go down only: deployments import the repository, never the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from console.deployments.models import Deployment
    from console.repository.models import Upload


class Deploying(Protocol):
    """The half of `console.deployments.services` that joins files with what is served."""

    def load_model(
        self, *, actor: Any, model: str, reason: str = "", upload: Upload | None = None
    ) -> Deployment: ...

    def workers_serving(self, model: str, version: int | None = None) -> list[str]: ...

    def check_idle(self, model: str) -> None: ...

    def forget_model(self, model: str) -> None: ...


_registered: list[Deploying] = []


def register(deploying: Deploying) -> None:
    _registered[:] = [deploying]


def deployments() -> Deploying:
    return _registered[0]
