"""What a scheduler sees of an instance, whichever way it is hosted. Loop thread only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serving.backends.base import ExecutionTimes
from serving.errors import CancelledError, ServingError
from serving.request import InferenceRequest, request_tag
from serving.response import InferenceResponse

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that one execution answers together."""

    requests: list[InferenceRequest]
    batch_size: int
    """Sum of the requests' batch sizes."""
    reason: str = ""
    """Why the batch closed, counted for each model; empty where nothing is put together.

    full: the next request does not fit, or the batch has its largest size; preferred: it has a
    preferred size; delay: its oldest request has waited long enough; shape, optional, shape_tensor:
    the next request differs in that; custom: the model's batch strategy refused the next one;
    queue_empty: nothing else waited. Sequences have their own reasons.
    """
    times: ExecutionTimes = field(default_factory=ExecutionTimes)
    rescheduled: list[InferenceRequest] = field(default_factory=list)
    """Those that the instance wants to execute again: filled before `done`, they have no answer."""
    is_returned: bool = False
    """It has not been executed, because its instance is gone: its requests wait on."""

    def stamp_requests(self) -> None:
        """Copy the execution times to every request. Hosts call it before they deliver answers."""
        times = self.times
        times.input_end_ns = times.input_end_ns or times.compute_start_ns
        times.output_start_ns = times.output_start_ns or times.compute_end_ns
        for request in self.requests:
            stamps = request.times
            stamps.compute_start_ns = times.compute_start_ns
            stamps.compute_input_end_ns = times.input_end_ns
            stamps.compute_output_start_ns = times.output_start_ns
            stamps.compute_end_ns = times.compute_end_ns


class InstanceHost(Protocol):
    """Hosts one model instance in a thread or a child process."""

    name: str
    on_state_change: Callable[[], None] | None
    """Set by the pool: called on the loop when `is_ready` changed (a child died or came back)."""

    @property
    def is_ready(self) -> bool:
        """False while a child process is dead or restarting."""

    @property
    def unready_reason(self) -> str: ...

    @property
    def has_ready_hook(self) -> bool:
        """`check_ready` asks the model itself."""

    async def check_ready(self) -> bool:
        """`is_ready`, and what the model says where it has a say."""

    @property
    def has_failed(self) -> bool:
        """It is not ready and will not become so by itself."""

    async def start(self) -> None:
        """Create the instance. Raises ServingError with the cause."""

    @property
    def burst_limit(self) -> int:
        """How many batches may come at once, see `execute_burst`."""

    @property
    def takes_ahead(self) -> bool:
        """It executes, and may be given one more batch now, to be executed after that."""

    def execute_burst(self, batches: Sequence[Batch], done: Callable[[Batch], None]) -> None:
        """Like `execute` for several batches, one after the other; `done` is called for each."""

    def execute(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        """Run the batch. Every request gets its responses through `request.deliver`.

        `done` is called exactly once, on the loop, when the instance can take the next batch and
        `batch.times` is filled, or the batch `is_returned`. At most one batch runs at a time.
        """

    async def stop(self) -> None:
        """Finish what runs, then free the instance."""

    def abandon(self, error: ServingError) -> bool:
        """Wait no longer for what runs: answer it with `error`, and let a `stop` come to its end.

        False when the work itself cannot be ended and goes on, in a thread, with nobody waiting.
        """


def cancelled_in_queue(model_name: str) -> CancelledError:
    return CancelledError(
        f"the request to model '{model_name}' was cancelled while it waited in the queue"
    )


def deliver(request: InferenceRequest, response: InferenceResponse) -> None:
    """Hand one response to the request's owner.

    Whatever goes wrong there must not take the other answers of the batch with it.
    """
    if request.deliver is None:
        return
    if response.is_final:
        request.on_cancel = None
    try:
        request.deliver(request, response)
    except Exception:
        logger.exception(
            "%s delivering a response failed model=%s", request_tag(request.id), request.model_name
        )


def cancel_waiting(request: InferenceRequest) -> None:
    """Answer a request that waits at an instance at once, as from a queue: what runs before it may
    take for ever. A later answer goes nowhere.
    """
    request.times.compute_start_ns = 0
    deliver(request, request.error_response(cancelled_in_queue(request.model_name)))
    request.deliver = None


def finish(done: Callable[[Batch], None], batch: Batch) -> None:
    """Tell the scheduler that the instance is free; its trouble must not cost the answers."""
    try:
        done(batch)
    except Exception:
        logger.exception("handing out the next batch failed")
