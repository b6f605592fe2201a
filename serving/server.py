"""ModelServer: the core as front ends and workers see it, one object on one event loop.

Owns the repository manager, the lifecycle and the backends; `infer` is the door of the hot path.
Everything here is called on the loop thread. Source: spec HTTP-001..012, REP-050..086.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from serving import devices, metadata
from serving.backends.registry import BackendRegistry
from serving.cache.base import ResponseCache
from serving.cache.registry import open_cache
from serving.clock import LoopClock
from serving.config.protobuf import pb
from serving.custom_metrics import CustomMetrics
from serving.errors import (
    InvalidArgumentError,
    ModelLoadError,
    NotFoundError,
    ServingError,
    UnavailableError,
)
from serving.model import Model
from serving.model_logs import ModelLogs
from serving.options import ControlMode, ServerOptions
from serving.rate_limiter import RateLimiter
from serving.repository import config_file
from serving.repository.cloud.repositories import CloudRepositories
from serving.repository.cloud.root import CloudRoot
from serving.repository.lifecycle import Lifecycle
from serving.repository.listeners import StateListeners
from serving.repository.load_threads import LoadThreads
from serving.repository.loader import ModelLoader
from serving.repository.manager import RepositoryManager
from serving.repository.namespaces import Namespaces, Repositories
from serving.repository.poller import Poller
from serving.repository.source import LoadRequest
from serving.repository.states import IndexEntry
from serving.repository.storage import check_root
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices

logger = logging.getLogger(__name__)


class ModelServer:
    """Made on its loop, or before it runs; `start` and everything after on the loop."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._listeners = StateListeners()
        self._lifecycle: Lifecycle | Namespaces = Lifecycle(self._listeners.tell)
        if options.model_namespacing:
            self._lifecycle = Namespaces(map(str, options.model_repositories), self._listeners.tell)
        self._threads = LoadThreads()
        self.backends = BackendRegistry.of(options)
        self._cloud = CloudRepositories(options.cloud, read_config=self._read_config)
        self._roots = [
            root if isinstance(root, Path) else self._cloud.root(root)
            for root in options.model_repositories
        ]
        self._manager: Repositories | None = None
        self.custom_metrics = CustomMetrics()  # those that models make themselves
        self._model_logs: ModelLogs | None = None
        self.cache: ResponseCache | None = None
        self.limiter: RateLimiter | None = None
        self._polling: list[asyncio.Task[None]] = []
        self._is_started = False
        self._is_stopping = False

    def __repr__(self) -> str:
        state = "stopping" if self._is_stopping else "started" if self._is_started else "new"
        return f"<ModelServer {state} {self._lifecycle!r}>"

    # Life

    async def start(self) -> None:
        """Load what the control mode asks for.

        Raises: InvalidArgumentError for a repository that is no directory, or a cache that cannot
        be had; ModelLoadError when a model failed and exit_on_error is set.
        """
        options = self.options
        loop = asyncio.get_running_loop()
        if options.model_log_directory is not None:
            self._model_logs = ModelLogs.attached(options.model_log_directory)
        gpu_count = await loop.run_in_executor(self._threads, self._look_around)
        clock = LoopClock(loop)
        opening = loop.run_in_executor(self._threads, open_cache, options.cache, loop, clock)
        self.cache = await opening
        if options.rate_limit:
            self.limiter = RateLimiter(clock, options.rate_limit_resources)
        services = ModelServices(
            clock,
            self._threads,
            gpu_count,
            options.model_drain_timeout_secs,
            warmup_timeout_s=options.model_warmup_timeout_secs,
            host_policies=options.host_policies,
            cache=self.cache,
            limiter=self.limiter,
            calls=self,
            metrics=self.custom_metrics,
            metrics_config=options.metrics_config,
        )
        manager = self._manager = self._make_manager(services)
        failed = await manager.load_all(self._names_at_start())
        for error in failed.values():
            logger.error("%s", error.message)
        if failed and options.exit_on_error:
            told = "; ".join(error.message for _, error in sorted(failed.items()))
            raise ModelLoadError(f"failed to load all models: {told}")
        if options.model_control_mode is ControlMode.POLL:
            self._polling = [self._start_polling(item) for item in manager.managers]
        self._is_started = True

    async def stop(self) -> bool:
        """Not ready, refuse new requests, finish those accepted, unload.

        False: something had not finished after exit_timeout_secs. It has been abandoned then, and
        every request answered.
        """
        self._is_stopping = True
        for polling in self._polling:
            polling.cancel()
        await asyncio.gather(*self._polling, return_exceptions=True)
        is_clean = True
        if self._manager is not None:
            is_clean = await self._manager.close(self.options.exit_timeout_secs)
        for close in (self.backends.finalize, self._cloud.close):
            await asyncio.get_running_loop().run_in_executor(LoadThreads("close"), close)
        self._threads.shutdown()
        if self._model_logs is not None:
            self._model_logs.close()
        if self.cache is not None:
            self.cache.close()
        return is_clean

    @property
    def is_live(self) -> bool:
        return True

    def is_ready(self) -> bool:
        if not self._is_started or self._is_stopping:
            return False
        return not self.options.strict_readiness or self._lifecycle.is_serving_everything()

    # Inference

    def infer(self, request: InferenceRequest) -> None:
        """Every outcome is one final response through `request.on_response`."""
        name, version = request.model_name, request.model_version
        model: Model | None = None
        try:
            if request.correlation_id and not request.sequence_start:
                # A sequence goes on where it began, even if that model gets no new ones any more.
                model = self.sequence_holder(name, version, request.correlation_id)
            if model is None:
                model = self._accepting(name, version)
        except ServingError as error:
            if request.on_response is not None:
                request.on_response(request.error_response(error))
            return
        model.infer(request)

    def sequence_holder(self, name: str, version: int, correlation_id: int | str) -> Model | None:
        """Who goes on with a sequence that has begun, be it a model that drains; None if none."""
        return self._lifecycle.sequence_holder(name, version, correlation_id)

    async def infer_async(self, request: InferenceRequest) -> InferenceResponse:
        """The final response. Raises ServingError when it is an error."""
        answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()

        def take(response: InferenceResponse) -> None:
            if response.is_final and not answer.done():
                answer.set_result(response)

        request.on_response = take
        self.infer(request)
        try:
            response = await answer
        except asyncio.CancelledError:
            request.cancel()
            raise
        if response.error is not None:
            raise response.error
        return response

    # What is served

    def model(self, name: str, version: int = -1, namespace: str = "") -> Model:
        """A READY one; `namespace` says where to look first, with --model-namespacing.

        Raises: NotFoundError, UnavailableError, or InvalidArgumentError for an ambiguous name.
        """
        try:
            if namespace and isinstance(self._lifecycle, Namespaces):
                return self._lifecycle.resolve(name, version, namespace=namespace)
            return self._lifecycle.resolve(name, version)
        except NotFoundError as error:
            if self._is_started:
                raise
            raise UnavailableError(f"Server is still starting: {error.message}") from error

    def _accepting(self, name: str, version: int) -> Model:
        """For clients: unlike models that call others, they are refused while the server stops."""
        if self._is_stopping:
            raise UnavailableError("Server is stopping, it accepts no new requests")
        if self._is_started:
            return self._lifecycle.resolve(name, version)
        return self.model(name, version)

    def receiver(self, name: str, version: int = -1) -> Model:
        """Whose config a request is read by; `infer` decides if it is taken. Raises as `model`."""
        try:
            return self._accepting(name, version)
        except ServingError:
            finishing = self._lifecycle.finishing_sequences(name, version)
            if finishing is None:
                raise
            return finishing

    def is_model_ready(self, name: str, version: int = -1) -> bool:
        """Raises NotFoundError for a model or version that is not known at all."""
        try:
            return self._accepting(name, version).is_ready
        except UnavailableError:
            return False
        except NotFoundError:
            if version == -1 and self._lifecycle.is_known(name):
                return False
            raise

    def ready_check(self, name: str, version: int = -1) -> asyncio.Task[bool] | None:
        """Of a ready model that has a say itself: its answer, shared by those who ask at once."""
        model = self.model(name, version)
        return model.check_ready() if model.has_ready_hook else None

    def ready_versions(self, name: str) -> list[int]:
        return self._lifecycle.ready_versions(name)

    def metrics_models(self) -> Iterable[Model]:
        """Every READY model, by name and version."""
        return self._lifecycle.ready_models()

    def server_metadata(self) -> dict[str, Any]:
        return metadata.of_server(self.options.server_id)

    def model_metadata(self, name: str, version: int = -1) -> dict[str, Any]:
        model = self.model(name, version)
        versions = self.ready_versions(name) if version == -1 else [version]
        return metadata.of_model(model.spec, versions)

    def model_config(self, name: str, version: int = -1) -> pb.ModelConfig:
        return self.model(name, version).config

    def model_statistics(self, name: str = "", version: int = -1) -> list[dict[str, Any]]:
        """Rows of "model_stats". Raises InvalidArgumentError for what is not served (HTTP-070)."""
        if name and version != -1:
            try:
                models = [self.model(name, version)]
            except (NotFoundError, UnavailableError) as error:
                raise InvalidArgumentError(
                    f"requested model version is not available: {error.message}"
                ) from error
        else:
            models = self._lifecycle.ready_models(name)
            if name and not models:
                raise InvalidArgumentError(
                    f"requested model '{name}' is not available for model statistics"
                )
        return [item.statistics() for item in models]

    # The repository

    def repository_index(self, ready_only: bool = False) -> list[IndexEntry]:
        if self._manager is None:
            return []
        return self._manager.index(ready_only=ready_only)

    async def load_model(
        self,
        name: str,
        *,
        config_override: str | None = None,
        files: Mapping[str, bytes] | None = None,
        versions: Collection[int] | None = None,
    ) -> None:
        """Returns when the model is READY.

        `versions`: serve exactly these until the next load.
        Raises: UnavailableError outside explicit mode; ModelLoadError, InvalidArgumentError.
        """
        manager = self.repositories()
        chosen = None if versions is None else frozenset(versions)
        await manager.load(name, LoadRequest(config_override, dict(files or {}), chosen))

    async def unload_model(
        self, name: str, *, version: int | None = None, unload_dependents: bool = False
    ) -> None:
        """Returns when the model no longer gets requests; it drains in the background.

        `unload_dependents`: parts that only this ensemble has brought in go too (REP-066).
        """
        await self.repositories().unload(name, version, with_parts=unload_dependents)

    def add_state_listener(self, callback: Callable[[IndexEntry], None]) -> None:
        """`callback` gets the row of every version that changes its state."""
        self._listeners.add(callback)

    async def settled(self) -> None:
        """Wait until nothing loads, drains or closes."""
        if self._manager is not None:
            await self._manager.settled()

    def repositories(self) -> Repositories:
        """For loads and unloads. Raises UnavailableError where the mode does not allow them."""
        mode = self.options.model_control_mode
        if mode is not ControlMode.EXPLICIT:
            reason = "polling is enabled" if mode is ControlMode.POLL else "mode is none"
            raise UnavailableError(
                f"explicit model load / unload is not allowed if {reason}; start the server with "
                "--model-control-mode=explicit"
            )
        if self._manager is None:
            raise UnavailableError("the server is still starting; try again in a moment")
        return self._manager

    def _look_around(self) -> int:
        """Blocking: are the repositories there, and how many GPUs?"""
        for root in self._roots:
            if isinstance(root, Path):
                check_root(root)
            else:
                self._cloud.check(root, may_be_absent=not self.options.exit_on_error)
        return devices.gpu_count()

    def _make_manager(self, services: ModelServices) -> Repositories:
        slots = asyncio.Semaphore(self.options.model_load_thread_count)
        if isinstance(self._lifecycle, Lifecycle):
            return Repositories([self._manager_of(self._roots, self._lifecycle, services, slots)])
        parts = zip(self._roots, self._lifecycle.lifecycles.values(), strict=True)
        return Repositories(
            [self._manager_of([root], part, services, slots) for root, part in parts]
        )

    def _manager_of(
        self,
        roots: Collection[Path | CloudRoot],
        lifecycle: Lifecycle,
        services: ModelServices,
        slots: asyncio.Semaphore,
    ) -> RepositoryManager:
        options = self.options
        loader = ModelLoader(
            self.backends,
            services,
            auto_complete=options.auto_complete_config,
            config_name=options.model_config_name,
            namespace=lifecycle.namespace,
            gpu_limits=options.model_load_gpu_limits,
            agent_directory=options.repoagent_directory,
            on_phase=lifecycle.note_phase,
        )
        return RepositoryManager(
            roots,
            lifecycle,
            loader,
            self._threads,
            load_slots=slots,
            load_timeout_s=options.model_load_timeout_secs,
            load_retries=options.model_load_retry_count,
        )

    def _names_at_start(self) -> Iterable[str] | None:
        """None: all."""
        names, mode = self.options.load_models, self.options.model_control_mode
        return names if mode is ControlMode.EXPLICIT and names != ("*",) else None

    def _start_polling(self, manager: RepositoryManager) -> asyncio.Task[None]:
        poller = Poller(manager, self.options.repository_poll_secs)
        for name, stamp in manager.served_stamps().items():
            poller.tracker.record_loaded(name, stamp)
        return asyncio.get_running_loop().create_task(poller.run())

    def _read_config(self, directory: Path, override: str | None) -> pb.ModelConfig:
        """For a repository that brings the wanted versions only. Any thread."""
        name = self.options.model_config_name
        return config_file.read(directory, override, config_name=name).config or pb.ModelConfig()
