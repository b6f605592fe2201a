"""What a worker is told by its environment; read once, when the process starts.

Every variable is listed in the settings reference of the docs. Importing this starts nothing.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from serving import host_policies, metrics_config, native_code
from serving.cache.settings import combined, parse_setting
from serving.cli_forms import OptionError
from serving.cli_trace import combined as trace_settings_of
from serving.cli_trace import trace_setting
from serving.errors import InvalidArgumentError
from serving.host_policies import HostPolicy
from serving.metrics_config import MetricsConfig
from serving.options import (
    CacheOptions,
    CloudOptions,
    ControlMode,
    FrontendOptions,
    ServerOptions,
    TraceSettings,
)
from serving.rate_limiter import limits_of, parse_mode, parse_resource
from serving.repository.cloud import url as cloud_url

DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"
T = TypeVar("T")
logger = logging.getLogger(__name__)
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
_WILDCARDS = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - compared, not bound


class SettingsError(Exception):
    """An environment variable has a value that cannot be used; the message says which ones can."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    redis_url: str
    worker_id: str
    server: ServerOptions
    frontends: FrontendOptions
    advertised_host: str = ""
    """Under which name others reach this worker; empty: the address that it listens on."""
    log_json: bool = False

    @property
    def queue(self) -> str:
        return queue_of(self.worker_id)

    def reachable(self, address: str) -> str:
        """The host name or address by which `address` of this machine is reached."""
        if self.advertised_host:
            return self.advertised_host
        return socket.gethostname() if address in _WILDCARDS else address


def queue_of(worker_id: str) -> str:
    return f"worker.{worker_id}"


def redis_url(environment: Mapping[str, str] | None = None) -> str:
    env = os.environ if environment is None else environment
    url = _secret(env, "REDIS_URL") or DEFAULT_REDIS_URL
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError(
            "REDIS_URL must start with redis://, rediss:// or unix://, as in "
            f"{DEFAULT_REDIS_URL} or unix:///run/conch/redis.sock"
        )
    return url


def broker_url(url: str) -> str:
    """Celery's spelling of a Redis URL: a UNIX socket is redis+socket:///path there."""
    if not url.startswith("unix://"):
        return url
    return "redis+socket://" + url.removeprefix("unix://").replace("?db=", "?virtual_host=")


def load_settings(environment: Mapping[str, str] | None = None) -> WorkerSettings:
    """Raises SettingsError."""
    env = os.environ if environment is None else environment
    worker_id = _default_id() if not env.get("CONCH_WORKER_ID") else env["CONCH_WORKER_ID"]
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}", worker_id):
        raise SettingsError(
            f"CONCH_WORKER_ID is {worker_id!r}: use letters, digits, '-', '_' and '.', at most 100"
        )
    return WorkerSettings(
        redis_url=redis_url(env),
        worker_id=worker_id,
        server=_server_options(env, worker_id),
        frontends=_frontend_options(env),
        advertised_host=env.get("CONCH_ADVERTISED_HOST", ""),
        log_json=_flag(env, "CONCH_LOG_JSON", default=False),
    )


def _server_options(env: Mapping[str, str], worker_id: str) -> ServerOptions:
    roots = cloud_url.split_list(env.get("CONCH_MODEL_REPOSITORY", ""))
    if not roots:
        raise SettingsError(
            "CONCH_MODEL_REPOSITORY is not set: name the directory that holds the models "
            f"(several are separated by '{os.pathsep}')"
        )
    models = [item.strip() for item in env.get("CONCH_LOAD_MODELS", "").split(",")]
    load_models = tuple(item for item in models if item)
    if "*" in load_models and len(load_models) > 1:
        raise SettingsError("CONCH_LOAD_MODELS: '*' loads every model, so it must stand alone")
    backend_directory = env.get("CONCH_BACKEND_DIRECTORY")
    log_directory = env.get("CONCH_MODEL_LOG_DIRECTORY")
    agent_directory = env.get("CONCH_REPOAGENT_DIRECTORY")
    return ServerOptions(
        model_repositories=tuple(_repository(root) for root in roots),
        server_id=worker_id,
        model_control_mode=ControlMode.EXPLICIT,
        load_models=load_models,
        exit_on_error=False,
        strict_readiness=_flag(env, "CONCH_STRICT_READINESS", default=False),
        model_load_thread_count=_number(env, "CONCH_LOAD_THREADS", 4, low=1, high=1024),
        model_load_retry_count=_number(env, "CONCH_LOAD_RETRIES", 0, high=1000),
        model_load_timeout_secs=_number(env, "CONCH_LOAD_TIMEOUT", 600, low=1),
        model_warmup_timeout_secs=_number(env, "CONCH_WARMUP_TIMEOUT", 300, low=1),
        model_drain_timeout_secs=_number(env, "CONCH_DRAIN_TIMEOUT", 600, low=1),
        exit_timeout_secs=_number(env, "CONCH_EXIT_TIMEOUT", 30),
        cache=_cache_options(env),
        rate_limit=_parsed(env, "CONCH_RATE_LIMIT", parse_mode) or False,
        rate_limit_resources=_resource_limits(env),
        metrics_config=_metrics_config(env),
        host_policies=_host_policies(env),
        repoagent_directory=Path(agent_directory) if agent_directory else None,
        backend_directory=Path(backend_directory) if backend_directory else None,
        backend_config=_backend_config(env),
        model_log_directory=Path(log_directory) if log_directory else None,
        cloud=_cloud_options(env),
    )


def _cache_options(env: Mapping[str, str]) -> CacheOptions | None:
    """As several --cache-config, separated by ';'."""
    directory = env.get("CONCH_CACHE_DIRECTORY")
    path = Path(directory).expanduser().absolute() if directory else None
    return _parsed(
        {"CONCH_CACHE_CONFIG": _secret(env, "CONCH_CACHE_CONFIG")},
        "CONCH_CACHE_CONFIG",
        lambda text: combined(map(parse_setting, _items(text)), path),
    )


def _resource_limits(env: Mapping[str, str]) -> Mapping[tuple[str, int | None], int]:
    limits = _parsed(
        env,
        "CONCH_RATE_LIMIT_RESOURCES",
        lambda text: limits_of(map(parse_resource, _items(text))),
    )
    return limits or {}


def _metrics_config(env: Mapping[str, str]) -> MetricsConfig:
    """As several --metrics-config, separated by ';'."""
    try:
        settings = map(metrics_config.parse_setting, _items(env.get("CONCH_METRICS_CONFIG", "")))
        return metrics_config.combined(settings)
    except ValueError as error:
        raise SettingsError(f"CONCH_METRICS_CONFIG: {error}") from None


def _trace_settings(env: Mapping[str, str]) -> TraceSettings:
    """As several --trace-config, separated by ';'."""
    warnings: list[str] = []
    try:
        pairs = list(map(trace_setting, _items(env.get("CONCH_TRACE_CONFIG", ""))))
        settings = trace_settings_of(pairs, warnings)
    except OptionError as error:
        raise SettingsError(f"CONCH_TRACE_CONFIG: {error}") from None
    for warning in warnings:
        logger.warning("CONCH_TRACE_CONFIG: %s", warning)
    return settings


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(";") if item.strip()]


def _parsed(env: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    """None where the variable is not set."""
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        return parse(text)
    except InvalidArgumentError as error:
        raise SettingsError(f"{name}: {error.message}") from None


def _backend_config(env: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """As several --backend-config, divided by ';'."""
    found: dict[str, dict[str, str]] = {}
    for item in env.get("CONCH_BACKEND_CONFIG", "").split(";"):
        if not item.strip():
            continue
        backend, comma, setting = item.strip().partition(",")
        key, equals, value = (setting if comma else backend).partition("=")
        if not equals or not key.strip():
            raise SettingsError(
                f"CONCH_BACKEND_CONFIG: '{item.strip()}' is not of the form <backend>,<key>=<value>"
            )
        found.setdefault(backend.strip() if comma else "", {})[key.strip()] = value.strip()
    # Whoever may publish models in the console shall not thereby run native code in the worker.
    allowed = _flag(env, "CONCH_ALLOW_NATIVE_CODE", default=False)
    found.setdefault("", {}).setdefault(native_code.KEY, str(allowed).lower())
    return found


def _host_policies(env: Mapping[str, str]) -> dict[str, HostPolicy]:
    settings = [item for item in env.get("CONCH_HOST_POLICIES", "").split(";") if item.strip()]
    try:
        return host_policies.combined(map(host_policies.parse_setting, settings))
    except ValueError as error:
        raise SettingsError(f"CONCH_HOST_POLICIES: {error}") from None


def _repository(text: str) -> Path | str:
    if not cloud_url.is_url(text):
        return Path(text).expanduser().absolute()
    try:
        return str(cloud_url.parse(text))
    except InvalidArgumentError as error:
        raise SettingsError(f"CONCH_MODEL_REPOSITORY: {error.message}") from None


def _cloud_options(env: Mapping[str, str]) -> CloudOptions:
    """The credential file is tritonserver's variable, which the core reads itself."""
    default = CloudOptions()
    directory = env.get("CONCH_CLOUD_CACHE_DIRECTORY")
    return CloudOptions(
        cache_directory=Path(directory).expanduser().absolute() if directory else None,
        cache_byte_size=_number(
            env, "CONCH_CLOUD_CACHE_BYTES", default.cache_byte_size, high=2**62
        ),
        timeout_secs=_number(env, "CONCH_CLOUD_TIMEOUT", int(default.timeout_secs), low=1),
    )


def _frontend_options(env: Mapping[str, str]) -> FrontendOptions:
    http_address = env.get("CONCH_HTTP_ADDRESS") or "127.0.0.1"
    return FrontendOptions(
        http_address=http_address,
        http_port=_number(env, "CONCH_HTTP_PORT", 8000, high=65535),
        grpc_address=env.get("CONCH_GRPC_ADDRESS") or http_address,
        grpc_port=_number(env, "CONCH_GRPC_PORT", 8001, high=65535),
        allow_client_shm=_flag(env, "CONCH_ALLOW_CLIENT_SHM", default=False),
        trace=_trace_settings(env),
        metrics_address=env.get("CONCH_METRICS_ADDRESS") or http_address,
        metrics_port=_number(env, "CONCH_METRICS_PORT", 8002, high=65535),
    )


def _number(
    env: Mapping[str, str], name: str, default: int, *, low: int = 0, high: int = 2**31
) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
        raise SettingsError(f"{name} is {text!r}: write a whole number from {low} to {high}")
    return int(text)


def _flag(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = env.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise SettingsError(f"{name} is {text!r}: write true or false")
    return word in _TRUE


def _secret(env: Mapping[str, str], name: str) -> str:
    """`NAME`, or the content of the file that `NAME_FILE` names (a container secret)."""
    if env.get(name) or not env.get(f"{name}_FILE"):
        return env.get(name, "")
    try:
        return Path(env[f"{name}_FILE"]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"{name}_FILE cannot be read: {error}") from error


def _default_id() -> str:
    """The host's name, cut to what a queue name may hold."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:100]
    return name or "worker"
