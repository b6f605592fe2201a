"""tritonserver's command line -> options of the core, its front ends and its logging.

Pure functions: no file is read and no socket opened here. Forms as in tritonserver: `--opt=value`,
`--opt value`, flags without value, booleans true / false / 1 / 0, repeated options.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from serving import metrics_config
from serving.cli_forms import Option, OptionError
from serving.cli_frontends import NO_EFFECT, frontend_options
from serving.cli_hosting import check_safe_range, services_of, with_hosting
from serving.cli_options import BY_NAME, SUPPORTED
from serving.cli_sharing import cache_options, resource_limits
from serving.errors import InvalidArgumentError
from serving.host_policies import combined
from serving.logging_setup import LogOptions
from serving.options import CloudOptions, ControlMode, FrontendOptions, ServerOptions

USAGE = "usage: python -m serving --model-repository=<directory> [options]   (--help lists them)"

_WILDCARDS = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - compared, not bound

T = TypeVar("T")


class CommandLineError(Exception):
    """One sentence on what is wrong with the command line and how to mend it."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    server: ServerOptions
    frontends: FrontendOptions = field(default_factory=FrontendOptions)
    logging: LogOptions = field(default_factory=LogOptions)
    warnings: tuple[str, ...] = ()
    """To be logged once logging is set up."""


class Values:
    """What was given, by option name; `get` falls back to the default of the options."""

    def __init__(self) -> None:
        self._given: dict[str, list[Any]] = {}

    def add(self, option: Option, value: object) -> None:
        values = self._given.setdefault(option.name, [])
        if values and not option.is_repeatable and values[0] != value:
            raise CommandLineError(
                f"--{option.name} is given twice with different values; give it once"
            )
        values.append(value)

    def has(self, name: str) -> bool:
        return name in self._given

    def get(self, name: str, default: T) -> T:
        values = self._given.get(name)
        return values[-1] if values else default

    def all(self, name: str) -> list[Any]:
        return self._given.get(name, [])


def parse(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> CommandLine | None:
    """None when --help was asked for. Raises CommandLineError.

    `environment`: what a hosting platform may have said by variables (CLI-071).
    """
    values = _read(arguments)
    if values.has("help"):
        return None
    warnings: list[str] = []
    try:
        frontends = with_hosting(frontend_options(values, warnings), values, environment or {})
        check_safe_range(values, frontends)
    except OptionError as error:
        raise CommandLineError(str(error)) from None
    _check_ports(frontends)
    server, more = _server_options(values)
    warnings += more
    warnings += [
        f"--{name} has no effect: {reason}"
        for name, reason in NO_EFFECT.items()
        if values.has(name)
    ]
    return CommandLine(server, frontends, _log_options(values), tuple(warnings))


def help_text() -> str:
    lines = [USAGE]
    group = ""
    for option in SUPPORTED:
        if option.group != group:
            group = option.group
            lines += ["", f"{group}:"]
        form = f" {option.form}" if option.form else ""
        lines.append(f"  --{option.name}{form}")
        also = f" Also --{option.alias}." if option.alias else ""
        lines.append(f"      {option.help}{also}")
    return "\n".join(lines) + "\n"


def _read(arguments: Sequence[str]) -> Values:
    values = Values()
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if argument == "-h":
            argument = "--help"
        if not argument.startswith("--") or argument == "--":
            raise CommandLineError(
                f"unexpected argument '{argument}': every option starts with --, as in "
                "--model-repository=<directory>"
            )
        name, equals, text = argument[2:].partition("=")
        option = _find(name)
        if not option.form:
            if equals:
                raise CommandLineError(f"--{name} takes no value; write just --{name}")
            values.add(option, True)
            continue
        if not equals:
            if not waiting or waiting[-1].startswith("--"):
                raise CommandLineError(f"--{name} needs a value: --{name}={option.form}")
            text = waiting.pop()
        try:
            values.add(option, option.convert(text))
        except OptionError as error:
            raise CommandLineError(f"--{name}={text}: {error}") from None
    return values


def _find(name: str) -> Option:
    option = BY_NAME.get(name)
    if option is not None:
        return option
    near = difflib.get_close_matches(name, BY_NAME, n=1)
    hint = f"; did you mean --{near[0]}?" if near else ""
    raise CommandLineError(f"unknown option --{name}{hint}")


def _server_options(values: Values) -> tuple[ServerOptions, list[str]]:
    default = ServerOptions(model_repositories=())
    warnings: list[str] = []
    mode = values.get("model-control-mode", default.model_control_mode)
    backend_config: dict[str, dict[str, str]] = {}
    for backend, key, value in values.all("backend-config"):
        backend_config.setdefault(backend, {})[key] = value
    if not values.has("model-repository"):
        raise CommandLineError(
            "--model-repository is missing: name the directory that holds the models"
        )
    try:
        cache, limits = cache_options(values, warnings), resource_limits(values, warnings)
    except InvalidArgumentError as error:
        raise CommandLineError(error.message) from None
    options = ServerOptions(
        model_repositories=tuple(dict.fromkeys(values.all("model-repository"))),
        server_id=values.get("id", default.server_id),
        model_control_mode=mode,
        load_models=_load_models(values, mode),
        repository_poll_secs=_poll_secs(values, mode, warnings),
        exit_on_error=values.get("exit-on-error", default.exit_on_error),
        strict_readiness=values.get("strict-readiness", default.strict_readiness),
        auto_complete_config=_auto_complete(values, warnings),
        model_load_thread_count=values.get(
            "model-load-thread-count", default.model_load_thread_count
        ),
        model_load_retry_count=values.get("model-load-retry-count", default.model_load_retry_count),
        model_load_gpu_limits=dict(values.all("model-load-gpu-limit")),
        model_namespacing=values.get("model-namespacing", default.model_namespacing),
        model_config_name=values.get("model-config-name", default.model_config_name),
        model_load_timeout_secs=values.get(
            "model-load-timeout-secs", default.model_load_timeout_secs
        ),
        model_warmup_timeout_secs=values.get(
            "model-warmup-timeout-secs", default.model_warmup_timeout_secs
        ),
        model_drain_timeout_secs=values.get(
            "model-drain-timeout-secs", default.model_drain_timeout_secs
        ),
        exit_timeout_secs=values.get("exit-timeout-secs", default.exit_timeout_secs),
        repoagent_directory=values.get("repoagent-directory", default.repoagent_directory),
        backend_directory=values.get("backend-directory", default.backend_directory),
        backend_config=backend_config,
        min_compute_capability=values.get(
            "min-supported-compute-capability", default.min_compute_capability
        ),
        model_log_directory=values.get("model-log-directory", default.model_log_directory),
        host_policies=combined(values.all("host-policy")),
        cache=cache,
        rate_limit=values.get("rate-limit", default.rate_limit),
        rate_limit_resources=limits,
        metrics_config=metrics_config.combined(values.all("metrics-config")),
        cloud=_cloud_options(values),
    )
    return options, warnings


def _cloud_options(values: Values) -> CloudOptions:
    default = CloudOptions()
    return CloudOptions(
        credential_path=values.get("cloud-credential", default.credential_path),
        cache_directory=values.get("cloud-cache-directory", default.cache_directory),
        cache_byte_size=values.get("cloud-cache-byte-size", default.cache_byte_size),
        timeout_secs=values.get("cloud-timeout-secs", default.timeout_secs),
    )


def _load_models(values: Values, mode: ControlMode) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(values.all("load-model")))
    if names and mode is not ControlMode.EXPLICIT:
        raise CommandLineError("--load-model needs --model-control-mode=explicit as well")
    if "*" in names and len(names) > 1:
        raise CommandLineError(
            "--load-model=* loads every model, so it must be the only --load-model"
        )
    return names


def _poll_secs(values: Values, mode: ControlMode, warnings: list[str]) -> int:
    seconds = values.get("repository-poll-secs", 15)
    if mode is ControlMode.POLL:
        if seconds == 0:
            raise CommandLineError("--repository-poll-secs must not be 0 in mode poll")
        return seconds
    if values.has("repository-poll-secs"):
        warnings.append("--repository-poll-secs has no effect without --model-control-mode=poll")
    return 0


def _auto_complete(values: Values, warnings: list[str]) -> bool:
    is_disabled = values.has("disable-auto-complete-config")
    if values.has("strict-model-config"):
        warnings.append(
            "--strict-model-config is deprecated: use --disable-auto-complete-config instead"
        )
        return not (is_disabled or values.get("strict-model-config", False))
    return not is_disabled


def _check_ports(options: FrontendOptions) -> None:
    """Two services on one address and port would stop the second one only later. CLI-170."""
    taken: list[tuple[str, str, int]] = []
    for option, is_allowed, address, port in services_of(options):
        if not is_allowed or port == 0:
            continue
        for other, other_address, other_port in taken:
            meets = address == other_address or _WILDCARDS & {address, other_address}
            if port == other_port and meets:
                raise CommandLineError(
                    f"{other} and {option} are both {port}; give each service its own port"
                )
        taken.append((option, address, port))


def _log_options(values: Values) -> LogOptions:
    default = LogOptions()
    return LogOptions(
        verbose=values.get("log-verbose", default.verbose),
        info=values.get("log-info", default.info),
        warning=values.get("log-warning", default.warning),
        error=values.get("log-error", default.error),
        format=values.get("log-format", default.format),
        file=str(values.get("log-file", default.file)),
    )
