"""The way of answers out of a model: who still waits, what an answer becomes, what is counted.

`deliver` is `request.deliver` of every accepted request: it puts the response into the form that
the config promises, records statistics and calls the caller back. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from serving.clock import Clock
from serving.config.decode import ModelSpec
from serving.errors import InternalError, InvalidArgumentError, ServingError
from serving.instance.base import Batch
from serving.request import InferenceRequest, request_tag
from serving.request_checks import RequestChecks
from serving.response import InferenceResponse
from serving.response_stats import ResponseStats
from serving.stats import ModelStats

logger = logging.getLogger(__name__)


class Answers:
    """Of one model version."""

    def __init__(
        self, spec: ModelSpec, checks: RequestChecks, stats: ModelStats, clock: Clock
    ) -> None:
        self.spec = spec
        self.open: set[InferenceRequest] = set()
        """Accepted and not answered for good."""
        self._checks = checks
        self._stats = stats
        self._responses = stats.responses
        self._first_response = stats.first_response
        self._clock = clock
        self._drained: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Answers {self.spec.name} open={len(self.open)}>"

    async def drained(self) -> None:
        """Returns when every accepted request has been answered for good."""
        if self.open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def abandon(self, error: ServingError) -> None:
        """Answer whoever waits with `error`; what comes for them later is dropped."""
        for request in list(self.open):
            self.deliver(request, request.error_response(error))

    def refuse(self, request: InferenceRequest, error: InvalidArgumentError) -> None:
        """The scheduler found a mistake of the caller's: no failure of the model."""
        self.open.discard(request)
        self._stats.record_invalid()
        call_back(request, request.error_response(error))

    def record_execution(self, batch: Batch) -> None:
        """`on_executed` of the scheduler."""
        times = batch.times
        self._stats.record_execution(
            batch.batch_size,
            batch.reason,
            times.input_end_ns - times.compute_start_ns,
            times.output_start_ns - times.input_end_ns,
            times.compute_end_ns - times.output_start_ns,
        )
        for request in batch.rescheduled:
            self._stats.record_rescheduled(request.batch_size)

    def deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """`request.deliver` of every accepted request."""
        if request not in self.open:
            return  # it was abandoned, and its answer comes after all
        if self._responses is None:
            if response.error is None:
                response = self._processed(request, response)
        else:
            response = self._one_of_many(self._responses, request, response)
        if request.trace is not None:
            request.trace.record(request, response)
        if response.is_final:
            self._record_final(request, response)
            # Whatever comes after the final response has nobody to go to.
            request.deliver = None
            request.on_cancel = None
            self.open.discard(request)
            if self._drained is not None and not self.open and not self._drained.done():
                self._drained.set_result(None)
        call_back(request, response)

    def _one_of_many(
        self, stats: ResponseStats, request: InferenceRequest, response: InferenceResponse
    ) -> InferenceResponse:
        came_ns = self._clock.now_ns()
        if response.error is None:
            response = self._processed(request, response)
        now_ns = self._clock.now_ns()
        is_first = stats.record(request, response, came_ns, now_ns)
        if is_first and self._first_response is not None:
            self._first_response.add(now_ns - request.times.request_start_ns)
        return response

    def _processed(
        self, request: InferenceRequest, response: InferenceResponse
    ) -> InferenceResponse:
        if not self.spec.is_decoupled and (response.is_null or not response.is_final):
            return request.error_response(
                InternalError(
                    f"model '{self.spec.name}' is not decoupled: expected a single response with "
                    "outputs for each request"
                )
            )
        wanted: Collection[str] = self.spec.outputs
        if request.requested_outputs:
            wanted = {output.name for output in request.requested_outputs}
        for item in response.outputs:
            if item.name not in wanted:
                response.outputs = [item for item in response.outputs if item.name in wanted]
                break
        if self._checks.has_output_reshape:
            try:
                response.outputs = self._checks.restore_outputs(response.outputs)
            except ServingError as error:
                return request.error_response(error)
        return response

    def _record_final(self, request: InferenceRequest, response: InferenceResponse) -> None:
        times = request.times
        now_ns = self._clock.now_ns()
        total_ns = now_ns - times.request_start_ns
        if response.error is not None:
            logger.debug("%s %s", request_tag(request.id), response.error.message)
            self._stats.record_failure(response.error.failure_reason, total_ns)
            return
        if self._first_response is not None and self._responses is None:
            self._first_response.add(total_ns)
        if times.cache_hit_ns:
            queued_ns = times.cache_start_ns - times.queue_start_ns
            self._stats.record_cache_hit(total_ns, queued_ns, times.cache_hit_ns)
            return
        # A decoupled model may end a request before its execution has ended and stamped it.
        end_ns = times.compute_end_ns or now_ns
        input_end_ns = times.compute_input_end_ns or times.compute_start_ns
        output_start_ns = times.compute_output_start_ns or end_ns
        self._stats.record_success(
            total_ns,
            times.compute_start_ns - times.queue_start_ns,
            input_end_ns - times.compute_start_ns,
            output_start_ns - input_end_ns,
            end_ns - output_start_ns,
            batch_size=request.batch_size,
        )


def call_back(request: InferenceRequest, response: InferenceResponse) -> None:
    if request.on_response is None:
        return
    try:
        request.on_response(response)
    except Exception:
        # One caller's broken callback must not stop the others' answers or the scheduler.
        logger.exception(
            "%s a response callback failed model=%s", request_tag(request.id), request.model_name
        )
