"""One loaded version of a model: config, request checks, scheduler, instances and statistics.

`Model.load` and `drain_and_close` are its life; `infer` is the hot path: check, stamp, enqueue; the
answer comes back through `Answers`. Everything runs on the loop thread; blocking work (loading,
reading labels, unloading) goes to the executor of the services.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from serving import load_steps, model_hosts, warmup
from serving.answers import Answers, call_back
from serving.backends.base import Backend, LoadedModel, ModelContext
from serving.config.decode import ModelSpec, SchedulerKind
from serving.config.protobuf import pb
from serving.errors import (
    CancelledError,
    InvalidArgumentError,
    ServingError,
    UnavailableError,
)
from serving.instance.base import InstanceHost
from serving.instance.turns import Turns
from serving.instance_set import InstanceChange, InstanceSet
from serving.kept_stats import stats_of
from serving.leases import Leases
from serving.process_memory import private_bytes
from serving.request import InferenceRequest
from serving.request_checks import RequestChecks
from serving.scheduling import caching
from serving.scheduling.custom_batching import BatchStrategy
from serving.scheduling.ensemble import EnsembleScheduler
from serving.scheduling.factory import make_scheduler
from serving.scheduling.sequence.lanes import SlotUsage
from serving.scheduling.sequence.scheduler import SequenceBatcher
from serving.scheduling.sequence.state import ImplicitState
from serving.services import ModelServices, ServedModel
from serving.stats import statistics_json

logger = logging.getLogger(__name__)
_CLOSE_S = 10.0
"""For instances to close after their requests were abandoned."""


class Model:
    """Made by `load` only."""

    def __init__(
        self,
        context: ModelContext,
        backend: Backend,
        loaded: LoadedModel | None,
        services: ModelServices,
        *,
        labels: dict[str, list[str]],
        strategy: BatchStrategy | None = None,
        states: ImplicitState | None = None,
        generation: bytes = b"",
    ) -> None:
        self.name = context.spec.name
        self.version = context.version
        self.namespace = ""
        """The repository, where --model-namespacing is on; set by the loader."""
        self.spec: ModelSpec = context.spec
        self.config: pb.ModelConfig = context.config
        self.stats = stats_of(context.spec, services.metrics_config)
        self.load_duration_s = 0.0
        self.leases = Leases()
        """Taken by requests of ensembles that this model will be asked for."""
        self.left_running: list[str] = []
        """Instances whose threads could not be ended; they may run for ever."""
        self._context = context
        self._backend = backend
        self._services = services
        self._clock = services.clock
        self._instances = InstanceSet(context, backend, loaded, services)
        self._pool = self._instances.pool
        self._loaded = loaded
        self._labels = labels
        self._checks = RequestChecks(context.spec)
        self._answers = Answers(context.spec, self._checks, self.stats, services.clock)
        scheduler = make_scheduler(
            context.spec,
            self._pool,
            services,
            self._answers.record_execution,
            strategy=strategy,
            states=states,
        )
        self._scheduler = caching.before(scheduler, context.spec, services, generation, self.stats)
        self.ensemble = scheduler if isinstance(scheduler, EnsembleScheduler) else None
        """None for any other model."""
        self._generation = generation
        self._is_closing = False
        self._ready_check: asyncio.Task[bool] | None = None
        self._drain_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return (
            f"<Model {self.name} {self.version} inflight={self.inflight_count} "
            f"{self._scheduler!r} {self._pool!r}>"
        )

    @classmethod
    async def load(
        cls,
        context: ModelContext,
        backend: Backend,
        services: ModelServices,
        *,
        on_phase: Callable[[str], None] = lambda phase: None,
    ) -> Model:
        """Load, create the instances, warm up. `on_phase` hears of a phase that takes time.

        Raises: ServingError naming the phase (check, load, initialize, warm-up) and the cause.
        """
        start_ns = time.monotonic_ns()
        with_phase = load_steps.LoadPhases(context.spec.name, context.version)
        has_file = context.spec.scheduler is not SchedulerKind.ENSEMBLE
        is_child = await with_phase("check", _check(context, backend, services))
        files = await with_phase("check", load_steps.read_files(context, services.executor))
        loaded: LoadedModel | None = None
        if has_file and not is_child:
            try:
                loading = load_steps.load(backend, context, services)
                loaded = await with_phase("load", loading)
            except BaseException:
                files.close()
                raise
        generation = await with_phase("check", caching.new_generation(context, services))
        model = cls(
            context,
            backend,
            loaded,
            services,
            labels=files.labels,
            strategy=files.strategy,
            states=files.states,
            generation=generation,
        )
        pool = model._pool
        try:
            await with_phase("initialize", pool.start())
            hosts = [*pool.hosts, *pool.passive]
            if files.samples:
                on_phase(warmup.PHASE)
            await with_phase("warm-up", model._warm_up(files.samples, hosts))
        except ServingError:
            await model.drain_and_close()
            raise
        except asyncio.CancelledError:
            # The deadline of the load: what hangs must not hold up the one who gave up on it.
            load_steps.in_background(model.drain_and_close())
            raise
        model.load_duration_s = (time.monotonic_ns() - start_ns) / 1e9
        return model

    @property
    def is_ready(self) -> bool:
        return not self.unready_reason

    @property
    def unready_reason(self) -> str:
        """Empty when requests can be executed now."""
        return "the model is being unloaded" if self._is_closing else self._scheduler.unready_reason

    @property
    def has_ready_hook(self) -> bool:
        """The model itself has a say in whether it is ready; see `check_ready`."""
        return any(host.has_ready_hook for host in self._pool.hosts) or bool(self._hooked_parts)

    @property
    def _hooked_parts(self) -> list[ServedModel]:
        return [] if self.ensemble is None else self.ensemble.hooked_parts()

    def check_ready(self) -> asyncio.Task[bool]:
        """Ask every instance; who asks meanwhile gets the same answer (PB-008)."""
        if self._ready_check is None or self._ready_check.done():
            self._ready_check = asyncio.get_running_loop().create_task(self._ask_ready())
        return self._ready_check

    async def _ask_ready(self) -> bool:
        answers = await asyncio.gather(
            *(host.check_ready() for host in self._pool.hosts if host.is_ready),
            *(part.check_ready() for part in self._hooked_parts),
        )
        return self.is_ready and all(answers)

    @property
    def has_failed(self) -> bool:
        """No instance executes, and none will come back by itself: only a new load helps."""
        return bool(self._pool.hosts) and self._pool.has_failed

    @property
    def inflight_count(self) -> int:
        """Requests accepted and not answered for good."""
        return len(self._answers.open)

    @property
    def queued_count(self) -> int:
        return self._scheduler.queued_count

    @property
    def slot_usage(self) -> SlotUsage | None:
        """Of a sequence model; None for any other."""
        scheduler = self._scheduler
        return scheduler.slot_usage if isinstance(scheduler, SequenceBatcher) else None

    def serves_sequence(self, correlation_id: int | str) -> bool:
        """A sequence with this id has begun here and not ended."""
        scheduler = self._scheduler
        return isinstance(scheduler, SequenceBatcher) and scheduler.serves(correlation_id)

    def statistics(self) -> dict[str, Any]:
        """Its row of "model_stats". `rate_limit` is Conch's own: what instances have waited for
        resources, and for which they wait now.
        """
        row = statistics_json(self.name, self.version, self.stats)
        if (size := self.process_bytes) is not None:
            row["memory_usage"] = [{"type": "CPU", "id": 0, "byte_size": size}]
        if self.turns is not None:
            row["rate_limit"] = self.turns.as_json()
        return row

    @property
    def is_cached(self) -> bool:
        """Its answers go into the server's response cache."""
        return bool(self._generation) and self._services.cache is not None

    @property
    def turns(self) -> Turns | None:
        """How its instances get their resources; None where no rate limiter is on."""
        return self._pool.turns

    @property
    def instance_count(self) -> int:
        return len(self._pool.hosts)

    @property
    def hosts(self) -> Collection[InstanceHost]:
        """The instances that take requests."""
        return self._pool.hosts

    @property
    def process_bytes(self) -> int | None:
        """What its instance processes have for themselves; None where it has none."""
        pids = [pid for host in self._pool.hosts if (pid := getattr(host, "pid", None))]
        return sum(map(private_bytes, pids)) if pids else None

    def labels_of(self, output_name: str) -> list[str]:
        """Lines of the output's label file; empty where it has none, and where its part has none
        either (SCH-094).
        """
        labels = self._labels.get(output_name)
        if labels is None and self.ensemble is not None:
            return self.ensemble.labels_of(output_name)
        return labels or []

    def infer(self, request: InferenceRequest) -> None:
        """Take the request; every outcome comes through `request.on_response`."""
        times = request.times
        times.request_start_ns = times.request_start_ns or self._clock.now_ns()
        request.model_version = self.version
        try:
            self._checks.check(request)
        except ServingError as error:
            self.stats.record_invalid()
            call_back(request, request.error_response(error))
            return
        request.deliver = self._answers.deliver
        self._answers.open.add(request)
        try:
            if request.is_cancelled:
                raise CancelledError(f"the request to model '{self.name}' was cancelled")
            self._scheduler.enqueue(request)
        except InvalidArgumentError as error:
            self._answers.refuse(request, error)
        except ServingError as error:
            self._answers.deliver(request, request.error_response(error))

    async def prepare_update(self, context: ModelContext) -> InstanceChange:
        """Start the instances that the groups of `context` want in addition; they do not serve
        before the change is committed. In nothing else may `context` differ (REP-090).

        Raises: ServingError as `load` does; the model goes on as it is then.
        """
        with_phase = load_steps.LoadPhases(self.name, self.version)
        loop = asyncio.get_running_loop()
        await with_phase("check", _check(context, self._backend, self._services))
        reading = loop.run_in_executor(self._services.executor, warmup.prepare, context)
        samples = await with_phase("check", reading)
        change = self._instances.change_to(
            context, lambda: self._adopt(context), self._services.drain_timeout_s
        )
        try:
            await with_phase("initialize", change.start())
            await with_phase("warm-up", self._warm_up(samples, change.hosts))
        except ServingError:
            await change.abandon()
            raise
        except asyncio.CancelledError:
            load_steps.in_background(change.abandon())
            raise
        return change

    def _adopt(self, context: ModelContext) -> None:
        self.spec, self.config, self._context = context.spec, context.config, context
        self._answers.spec = context.spec

    async def drain_and_close(self) -> None:
        """Refuse new requests, finish all accepted ones, then free instances and model.

        What has not finished after `drain_timeout_s` is abandoned.
        """
        self._is_closing = True
        self._arm_drain_timer(self._services.drain_timeout_s)
        try:
            await self.leases.returned()
            await self._scheduler.stop()
            await self._answers.drained()
            await self._pool.stop()
        finally:
            if self._drain_timer is not None:
                self._drain_timer.cancel()
        if self._services.cache is not None and self._generation:
            self._services.cache.forget(self._generation)
        loaded, self._loaded = self._loaded, None
        if not self.left_running:  # their threads may still use it
            await load_steps.unload(loaded, self._services)

    def abandon(self, error: ServingError) -> None:
        """Wait no longer: every accepted request is answered with `error`, processes are killed.

        A thread that executes cannot be ended; it is left, see `left_running`.
        """
        self._is_closing = True
        self.leases.abandon()
        self._scheduler.abandon(error)
        left = self._pool.abandon(error)
        self._answers.abandon(error)  # of a decoupled model, after its execution
        if left:
            self.left_running += left
            logger.warning(
                "threads that do not finish are left running until the server exits: %s "
                "model=%s version=%d",
                ", ".join(left),
                self.name,
                self.version,
            )

    def _arm_drain_timer(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._drain_timer = loop.call_later(delay_s, self._end_drain)

    def _end_drain(self) -> None:
        timeout_s = self._services.drain_timeout_s
        logger.warning(
            "%d requests did not finish within the drain timeout of %g s model=%s version=%d",
            len(self._answers.open),
            timeout_s,
            self.name,
            self.version,
        )
        self._arm_drain_timer(_CLOSE_S)  # for an idle instance that does not close either
        self.abandon(
            UnavailableError(
                f"model '{self.name}' version {self.version} was unloaded or replaced, and the "
                f"request did not finish within the drain timeout of {timeout_s:g} s; "
                "send it again, or raise --model-drain-timeout-secs"
            )
        )

    async def _warm_up(
        self, samples: list[warmup.PreparedSample], hosts: Sequence[InstanceHost]
    ) -> None:
        """Raises: ServingError of the first sample that fails, or that the time is over."""
        if not samples:
            return
        running = [warmup.run(host, samples, self._context, self._checks) for host in hosts]
        timeout_s = self._services.warmup_timeout_s
        try:
            await asyncio.wait_for(asyncio.gather(*running), timeout_s)
        except TimeoutError:
            error = warmup.overdue(timeout_s)
            # What hangs must not hold up the end of the load.
            left = [host.name for host in hosts if not host.abandon(error)]
            self.left_running += left
            raise error from None


async def _check(context: ModelContext, backend: Backend, services: ModelServices) -> bool:
    model_hosts.check_supported(context.spec, services)
    if services.limiter is not None:
        services.limiter.check(context.config)
    return model_hosts.runs_in_child(context, backend)
