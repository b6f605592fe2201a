"""From the files of a model to running Models: read, complete, check, load.

`prepare` and `_complete` block and run in loading threads; `load_version` runs on the loop. Holds
no state but the backends, which exist once for each server. Source: spec AUT-01.., REP-002..006.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from serving import devices
from serving.backends.base import Backend, ModelContext
from serving.backends.ensemble import EnsembleBackend
from serving.backends.registry import BackendRegistry
from serving.config import complete
from serving.config.decode import InstanceKind, ModelSpec, decode
from serving.config.findings import Severity, errors_of, one_line
from serving.config.pbtxt import ParsedConfig
from serving.config.protobuf import pb
from serving.config.report import Available
from serving.config.validate import validate
from serving.config.validate_graph import is_ensemble
from serving.errors import InvalidArgumentError, UnavailableError, UnsupportedError
from serving.instance_set import InstanceChange
from serving.model import Model
from serving.repository import config_file, ensembles, layout
from serving.repository.agents import Action, AgentRegistry, AgentSession
from serving.repository.dependencies import parts_of
from serving.repository.source import Source
from serving.repository.version_policy import missing_versions, select_versions
from serving.services import ModelServices

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A config that is read and sound as far as it can be judged without the model file."""

    source: Source
    parsed: ParsedConfig
    config: pb.ModelConfig
    versions: Collection[int]
    directory: Path
    """Where the files are: that of the source, unless an agent has redirected the load."""
    agents: AgentSession | None = None
    alone: pb.ModelConfig | None = None
    """Of an ensemble whose parts have changed `config`: what it was before."""

    @property
    def backend(self) -> str:
        backend: str = self.config.backend or self.config.platform
        return backend

    @property
    def parts(self) -> Collection[str]:
        return parts_of(self.config)


class ModelLoader:
    def __init__(
        self,
        backends: BackendRegistry,
        services: ModelServices,
        *,
        auto_complete: bool = True,
        config_name: str = "",
        namespace: str = "",
        gpu_limits: Mapping[int, float] | None = None,
        agent_directory: Path | None = None,
        on_phase: Callable[[str, int, str], None] = lambda name, version, phase: None,
    ) -> None:
        """`on_phase` hears which model and version is where in its load, e.g. warming up."""
        self._backends = backends
        self._services = services
        self._auto_complete = auto_complete
        self._gpu_count = services.gpu_count
        self._config_name = config_name
        self._namespace = namespace
        self._gpu_limits = gpu_limits or {}
        self._on_phase = on_phase
        self._agents = AgentRegistry(agent_directory)
        self._ensembles = EnsembleBackend()

    def prepare(self, source: Source) -> Prepared:
        directory = source.directory
        parsed, config = self._configured(source, directory)
        agents: AgentSession | None = None
        if config.model_repository_agents.agents:
            agents = AgentSession.load(self._agents, source.name, config, directory)
        try:
            if agents is not None and agents.place(directory) != directory:
                directory = agents.place(directory)
                parsed, config = self._configured(source, directory)
            if is_ensemble(config):
                complete.complete(config, name=source.name, model_directory=directory)
                self._check(Prepared(source, parsed, config, (), directory), config, directory)
            versions = self._select(source, directory, config)
        except BaseException:
            if agents is not None:
                agents.finish(Action.LOAD_FAIL)
            raise
        return Prepared(source, parsed, config, versions, directory, agents)

    def _configured(self, source: Source, directory: Path) -> tuple[ParsedConfig, pb.ModelConfig]:
        parsed = config_file.read(
            directory,
            source.request.config,
            config_name=self._config_name,
            may_be_absent=self._auto_complete,
        )
        config = pb.ModelConfig()
        if parsed.config is not None:
            config.CopyFrom(parsed.config)
        if source.is_renamed:
            config.name = source.name
        complete.fill_identity(config, name=source.name, model_directory=directory)
        return parsed, config

    def join(self, prepared: Prepared) -> Prepared:
        config = pb.ModelConfig()
        config.CopyFrom(prepared.alone or prepared.config)
        calls, name = self._services.calls, prepared.source.name
        if calls is None:
            raise UnsupportedError("an ensemble needs a server that has its models")
        findings = ensembles.join(name, prepared.parsed, config, calls, self._namespace)
        config_file.refuse(findings)
        if config == prepared.config:
            return prepared
        return replace(prepared, config=config, alone=prepared.alone or prepared.config)

    def _backend_of(self, config: pb.ModelConfig, version_directory: Path) -> Backend:
        if is_ensemble(config):
            return self._ensembles
        return self._backends.get(
            config.backend, runtime=config.runtime, version_directory=version_directory
        )

    async def load_version(self, prepared: Prepared, version: int, threads: Executor) -> Model:
        loop = asyncio.get_running_loop()
        tell = partial(self._on_phase, prepared.source.name, version)
        waits = partial(loop.call_soon_threadsafe, tell, "environment")
        context, backend = await loop.run_in_executor(
            threads, self._complete, prepared, version, waits
        )
        model = await Model.load(context, backend, self._services, on_phase=tell)
        model.namespace = self._namespace
        return model

    def may_update(self, before: Prepared, after: Prepared, version: int) -> bool:
        config_files = config_file.names(self._config_name)
        return before.source.stamp.is_same_version(
            after.source.stamp, version, but_for=config_files
        ) and _without_instances(before.config) == _without_instances(after.config)

    async def prepare_update(
        self, prepared: Prepared, version: int, model: Model, threads: Executor
    ) -> InstanceChange:
        loop = asyncio.get_running_loop()
        context, _ = await loop.run_in_executor(
            threads, self._complete, prepared, version, lambda: None
        )
        return await model.prepare_update(context)

    def _select(self, source: Source, directory: Path, config: pb.ModelConfig) -> list[int]:
        scanned = layout.scan_model(directory)
        available = scanned.versions
        for entry in scanned.ignored:
            logger.warning("%s model=%s", entry.reason, source.name)
        wanted = source.request.versions
        if wanted is not None:
            absent = sorted(wanted - set(available))
            if absent or not wanted:
                raise InvalidArgumentError(
                    f"asked for version {_listed(absent) or 'none'}, but the model directory has "
                    f"{_listed(available) or 'no version'}"
                )
            return sorted(wanted)
        for version in missing_versions(config.version_policy, available):
            logger.error(
                "version %d is named by the version policy and has no directory model=%s",
                version,
                source.name,
            )
        versions = select_versions(config.version_policy, available)
        if not versions:
            raise InvalidArgumentError(_no_version(source.name, scanned))
        return versions

    def _complete(
        self, prepared: Prepared, version: int, on_environment: Callable[[], object]
    ) -> tuple[ModelContext, Backend]:
        config = pb.ModelConfig()
        config.CopyFrom(prepared.config)
        directory = prepared.directory
        backend = self._backend_of(config, directory / str(version))
        logger.info(
            "backend '%s' from %s model=%s version=%s",
            backend.name,
            backend.source or "the core",
            prepared.source.name,
            version,
        )
        context = ModelContext(
            _partial_spec(config),
            config,
            version,
            directory,
            self._backends.config_of(backend.name),
            runtime_directory=backend.runtime_directory,
        )
        interpreter = backend.prepare_environment(context, on_environment)
        context = replace(context, interpreter=interpreter)
        if self._auto_complete:
            backend.auto_complete(context)
        complete.complete(
            config,
            name=prepared.source.name,
            model_directory=directory,
            gpu_count=self._gpu_count,
            cpu_instance_count=backend.default_cpu_instance_count,
            preferred=backend.attributes.preferred_instance_groups,
        )
        self._check(prepared, config, directory)
        try:
            spec = decode(config)
        except ValueError as error:
            raise InvalidArgumentError(f"{prepared.parsed.file}: {error}") from error
        self._check_gpu_memory(spec)
        _check_capability(spec, self._backends.min_compute_capability)
        return replace(context, spec=spec), backend

    def _check_gpu_memory(self, spec: ModelSpec) -> None:
        """Raises UnavailableError while a device is fuller than --model-load-gpu-limit. REP-073."""
        wanted = {gpu for group in spec.instance_groups for gpu in group.gpus}
        for gpu in sorted(wanted & self._gpu_limits.keys()):
            limit, in_use = self._gpu_limits[gpu], devices.memory_in_use(gpu)
            if in_use is not None and in_use > limit:
                raise UnavailableError(
                    f"memory limit set for GPU {gpu} is {limit:.0%} and {in_use:.0%} is in use: "
                    "unload another model first, or raise --model-load-gpu-limit"
                )

    def _check(self, prepared: Prepared, config: pb.ModelConfig, directory: Path) -> None:
        parsed = ParsedConfig(
            prepared.parsed.text,
            config,
            [],
            prepared.parsed.file,
            prepared.parsed.places,
            prepared.parsed.lines,
        )
        findings = validate(
            parsed,
            directory_name=prepared.source.name,
            model_directory=directory,
            strict=not self._auto_complete,
            available=Available(
                self._gpu_count, frozenset({*self._backends.names(), config.backend})
            ),
        )
        config_file.refuse(findings)
        for finding in findings:
            level = logging.WARNING if finding.severity is Severity.WARNING else logging.DEBUG
            logger.log(level, "%s model=%s", one_line(finding), prepared.source.name)


def _check_capability(spec: ModelSpec, least: float) -> None:
    """Raises: InvalidArgumentError for a device that --min-supported-compute-capability rules out;
    where the driver does not say what a device can, it passes.
    """
    for group in spec.instance_groups:
        for device in devices.list_gpus() if group.kind is InstanceKind.GPU else ():
            is_wanted = not group.gpus or device.index in group.gpus
            if is_wanted and 0 < device.compute_capability < least:
                raise InvalidArgumentError(
                    f"instance group '{group.name}' asks for GPU {device.index} ({device.name}), "
                    f"whose compute capability {device.compute_capability:g} is below the minimum "
                    f"{least:g}: choose another, or lower --min-supported-compute-capability"
                )


def _without_instances(config: pb.ModelConfig) -> pb.ModelConfig:
    """What has to be equal for an update in place. REP-090."""
    rest = pb.ModelConfig()
    rest.CopyFrom(config)
    rest.ClearField("instance_group")
    rest.ClearField("version_policy")
    return rest


def _partial_spec(config: pb.ModelConfig) -> ModelSpec:
    """The spec as far as the config goes; tensors wait for the backend when one lacks its type."""
    try:
        return decode(config)
    except ValueError:
        bare = pb.ModelConfig()
        bare.CopyFrom(config)
        bare.ClearField("input")
        bare.ClearField("output")
        bare.ClearField("model_warmup")
        return decode(bare)


def _no_version(name: str, scanned: layout.ModelDirectory) -> str:
    causes = errors_of(layout.check_layout(scanned))
    if not scanned.versions and causes:
        return one_line(causes[0])
    return (
        f"at least one version must be available under the version policy of model '{name}': its "
        f"directory has {_listed(scanned.versions) or 'no version'}; correct version_policy"
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
