"""The scheduler interface. Everything here is called on the loop thread."""

from __future__ import annotations

from typing import Protocol

from serving.errors import ServingError
from serving.request import InferenceRequest


class Scheduler(Protocol):
    def enqueue(self, request: InferenceRequest) -> None:
        """Take the request. Raises ServingError when it is refused; nothing is queued then."""

    @property
    def queued_count(self) -> int:
        """Requests that wait and do not execute yet."""

    @property
    def inflight_count(self) -> int:
        """Requests that wait or execute."""

    @property
    def unready_reason(self) -> str:
        """Empty while requests can be executed."""

    async def stop(self) -> None:
        """Refuse new requests and return when every request has been answered."""

    def abandon(self, error: ServingError) -> None:
        """Refuse new requests, and answer every one that waits with `error`."""
