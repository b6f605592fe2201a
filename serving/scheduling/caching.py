"""Stands before the scheduler of a model with a response cache (SCH-120..126).

A request whose answer is kept is answered at once and sees no queue; another one goes on to the
scheduler, and its answer is kept on the way back. With preserve_ordering a hit waits for those that
came before it. Several requests with one key that come together are all executed, as in Triton.
Loop thread only; large inputs are hashed in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial

from serving.backends.base import ModelContext
from serving.cache import key as keys
from serving.cache.base import CachedAnswer, ResponseCache
from serving.cache.key import input_bytes, request_key
from serving.clock import Clock
from serving.config.decode import ModelSpec, SchedulerKind
from serving.errors import CancelledError, InternalError, QueueRejectedError, ServingError
from serving.request import InferenceRequest, request_tag
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.base import Scheduler
from serving.scheduling.ensemble import EnsembleScheduler
from serving.scheduling.ordering import ResponseOrder
from serving.services import ModelServices
from serving.stats import ModelStats

logger = logging.getLogger(__name__)

_HASH_IN_THREAD = 256 << 10
"""Bytes of input that take longer to hash than a thread takes to begin."""

Salt = Callable[[InferenceRequest], bytes]


def is_wanted(spec: ModelSpec) -> bool:
    """Whether the answers of this model may be kept: they depend on the request alone."""
    return (
        spec.response_cache
        and not spec.is_decoupled
        and spec.scheduler is not SchedulerKind.SEQUENCE
    )


async def new_generation(context: ModelContext, services: ModelServices) -> bytes:
    """What the keys of a model begin with from now on; empty where nothing is to be cached.

    No load shares entries with another one, but for those of equal files in a shared cache. There
    an ensemble does not: its answers depend on files of other models.
    """
    spec = context.spec
    if not is_wanted(spec):
        return b""
    if services.cache is None:
        logger.info("response_cache has no effect without --cache-config model=%s", spec.name)
        return b""
    if not services.cache.is_shared or spec.scheduler is SchedulerKind.ENSEMBLE:
        return secrets.token_bytes(keys.GENERATION_SIZE)
    return await asyncio.get_running_loop().run_in_executor(
        services.executor,
        keys.generation_of_files,
        spec.name,
        context.version,
        context.config.SerializeToString(deterministic=True),
        context.model_directory,
    )


def before(
    scheduler: Scheduler,
    spec: ModelSpec,
    services: ModelServices,
    generation: bytes,
    stats: ModelStats,
) -> Scheduler:
    """The scheduler with the server's cache before it, where the model has a generation."""
    if services.cache is None or not generation:
        return scheduler
    return CachingScheduler(
        scheduler,
        services.cache,
        generation,
        services.clock,
        outputs=spec.outputs,
        hashing=services.executor,
        on_miss=stats.record_cache_miss,
        preserves_ordering=spec.dynamic_batching.preserve_ordering,
        salt=_salt_of(scheduler) if isinstance(scheduler, EnsembleScheduler) else None,
    )


def _salt_of(ensemble: EnsembleScheduler) -> Salt:
    """Answers of an ensemble depend on the very models that its steps call."""

    def salt(request: InferenceRequest) -> bytes:
        binding = request.pinned or ensemble.bind(request)
        return b"%d" % binding.serial

    return salt


class CachingScheduler:
    def __init__(
        self,
        behind: Scheduler,
        cache: ResponseCache,
        generation: bytes,
        clock: Clock,
        *,
        outputs: Iterable[str],
        hashing: Executor | None,
        on_miss: Callable[[int], None],
        preserves_ordering: bool = False,
        salt: Salt | None = None,
    ) -> None:
        """`generation` begins the keys of this load of the model; `salt` says what else answers
        depend on. `on_miss` gets the nanoseconds that looking up and keeping took.
        """
        self.behind = behind
        self._cache = cache
        self._generation = generation
        self._outputs = tuple(sorted(outputs))
        self._clock = clock
        self._hashing = hashing
        self._on_miss = on_miss
        self._salt = salt
        self._order = ResponseOrder() if preserves_ordering else None
        self._looking: set[InferenceRequest] = set()
        """Not answered by the cache yet, and not known to the scheduler behind it."""
        self._is_stopping = False
        self._all_found: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<CachingScheduler looking={len(self._looking)} {self.behind!r}>"

    @property
    def queued_count(self) -> int:
        return self.behind.queued_count + len(self._looking)

    @property
    def inflight_count(self) -> int:
        return self.behind.inflight_count + len(self._looking)

    @property
    def unready_reason(self) -> str:
        return self.behind.unready_reason

    async def stop(self) -> None:
        self._is_stopping = True
        if self._looking:
            self._all_found = asyncio.get_running_loop().create_future()
            await self._all_found
        await self.behind.stop()

    def abandon(self, error: ServingError) -> None:
        self._is_stopping = True
        for request in list(self._looking):
            self._leave(request, error)
        self.behind.abandon(error)

    def enqueue(self, request: InferenceRequest) -> None:
        if self._is_stopping:
            raise QueueRejectedError(
                "the server is stopping, or the model is being unloaded: it takes no new "
                "requests; send the request again later or to another server"
            )
        if request.correlation_id:
            # Part of a sequence: the answer depends on what came before.
            self.behind.enqueue(request)
            return
        request.times.queue_start_ns = self._clock.now_ns()
        salt = b"" if self._salt is None else self._salt(request)
        is_large = input_bytes(request) >= _HASH_IN_THREAD
        if self._hashing is not None and is_large:
            self._join(request)
            self._hash_in_thread(self._hashing, request, salt)
        else:
            key = request_key(self._generation, request, self._outputs, salt)
            self._join(request)
            self._look_up(request, key)

    def _join(self, request: InferenceRequest) -> None:
        if self._order is not None:
            self._order.join(request)
        self._looking.add(request)
        request.on_cancel = self._cancel

    def _hash_in_thread(self, threads: Executor, request: InferenceRequest, salt: bytes) -> None:
        loop = asyncio.get_running_loop()
        hashing = loop.run_in_executor(
            threads, request_key, self._generation, request, self._outputs, salt
        )

        def hashed(done: asyncio.Future[bytes]) -> None:
            if request not in self._looking:
                return
            error = done.exception()
            if error is None:
                self._look_up(request, done.result())
            else:
                self._leave(request, InternalError(f"the inputs could not be hashed: {error}"))

        hashing.add_done_callback(hashed)

    def _look_up(self, request: InferenceRequest, key: bytes) -> None:
        start_ns = request.times.cache_start_ns = self._clock.now_ns()
        self._cache.look_up(key, partial(self._found, request, key, start_ns))

    def _found(
        self, request: InferenceRequest, key: bytes, start_ns: int, answer: CachedAnswer | None
    ) -> None:
        if request not in self._looking:
            return  # cancelled or abandoned meanwhile
        took_ns = self._clock.now_ns() - start_ns
        request.on_cancel = None
        self._looking.discard(request)
        if answer is not None:
            request.times.cache_hit_ns = max(1, took_ns)
            self._deliver(request, _response(request, answer))
        else:
            self._pass_on(request, key, took_ns)
        self._tell_found()

    def _pass_on(self, request: InferenceRequest, key: bytes, took_ns: int) -> None:
        deliver = request.deliver
        is_first = True

        def keep(request: InferenceRequest, response: InferenceResponse) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                self._keep(key, response, took_ns)
            if deliver is not None:
                deliver(request, response)

        request.deliver = keep
        try:
            self.behind.enqueue(request)
        except ServingError as error:
            request.deliver = deliver
            self._deliver(request, request.error_response(error))

    def _keep(self, key: bytes, response: InferenceResponse, took_ns: int) -> None:
        start_ns = self._clock.now_ns()
        if response.error is None and response.is_final and not response.is_null:
            try:
                self._cache.insert(key, CachedAnswer.copy_of(response))
            except MemoryError:
                logger.warning(
                    "%s no memory to keep an answer model=%s",
                    request_tag(response.id),
                    response.model_name,
                )
        self._on_miss(took_ns + self._clock.now_ns() - start_ns)

    def _cancel(self, request: InferenceRequest) -> None:
        if request in self._looking:
            self._leave(
                request,
                CancelledError(f"the request to model '{request.model_name}' was cancelled"),
            )

    def _leave(self, request: InferenceRequest, error: ServingError) -> None:
        self._looking.discard(request)
        request.on_cancel = None
        self._deliver(request, request.error_response(error))
        self._tell_found()

    @staticmethod
    def _deliver(request: InferenceRequest, response: InferenceResponse) -> None:
        if request.deliver is not None:
            request.deliver(request, response)

    def _tell_found(self) -> None:
        waiting = self._all_found
        if waiting is not None and not self._looking and not waiting.done():
            waiting.set_result(None)


def _response(request: InferenceRequest, answer: CachedAnswer) -> InferenceResponse:
    outputs = [
        OutputTensor(item.name, item.datatype, item.shape, item.array) for item in answer.outputs
    ]
    return InferenceResponse(
        request.model_name,
        request.model_version,
        request.id,
        outputs=outputs,
        parameters=dict(answer.parameters),
    )
