"""What the process of an instance lends to the backend that runs in it: other models, metrics.

Implemented by `serving.instance.child_calls`; any thread of the model may enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serving.request import InferenceRequest
from serving.response import InferenceResponse


class ModelCall(Protocol):
    """One inference on another model."""

    on_news: Callable[[], None] | None
    """Called when a response has come, by any thread."""

    @property
    def is_over(self) -> bool:
        """The final response has come; it may not have been taken yet."""

    def take(self) -> InferenceResponse | None:
        """The next response that is here, or None."""

    def wait(self) -> InferenceResponse:
        """The next response. Raises: ServingError when none will come."""

    def cancel(self) -> None: ...


@dataclass(slots=True)
class MetricChange:
    """What has happened to a metric since it was last told."""

    metric: int
    """The number that `new_metric` gave."""
    value: float | None = None
    """What it was set to."""
    added: float = 0.0
    """After that; the sum of a histogram's observations."""
    counts: list[int] = field(default_factory=list)
    """New observations by bucket of a histogram, the one without a bound last."""


class ChildServices(Protocol):
    """Every method may raise ServingError with the reason of the server."""

    def call(
        self,
        request: InferenceRequest,
        *,
        is_decoupled: bool,
        caller: InferenceRequest | None = None,
        on_news: Callable[[], None] | None = None,
    ) -> ModelCall:
        """Start an inference on another model.

        `is_decoupled`: any number of responses may come. `caller`: the request on whose behalf it
        is, where that is not the one that the thread executes: closing it cancels the call.
        """

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` soon: for finalizers, which may come at any point."""

    def poll(self) -> None:
        """Take notice of what has come, such as a cancellation."""

    def load_model(self, name: str, config: str, files: Mapping[str, bytes]) -> None: ...

    def unload_model(self, name: str, unload_dependents: bool) -> None: ...

    def is_model_ready(self, name: str, version: int) -> bool: ...

    def declare_family(self, name: str, description: str, kind: int) -> None:
        """A metric family, by the numbers of `pb_utils.MetricFamily`."""

    def new_metric(
        self, family: str, labels: Mapping[str, str], bounds: Sequence[float]
    ) -> int: ...

    def metric_value(self, metric: int) -> float: ...

    def send_metrics(self, changes: Sequence[MetricChange], gone: Sequence[int]) -> None:
        """`gone`: metrics that the model no longer has."""
