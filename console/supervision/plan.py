"""Which processes make up a Conch on one machine, and how each of them is started.

Pure decisions from options and environment; `console.supervision.supervisor` runs the result.
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from console.supervision import redis_server
from console.supervision.process import ProcessSpec


@dataclass(frozen=True)
class UpOptions:
    data_directory: Path
    repository: Path
    host: str
    port: int
    worker_id: str
    worker_http_port: int
    worker_grpc_port: int
    worker_metrics_port: int
    load_models: bool
    """On a first start, want every model that is on disk."""


class PortError(Exception):
    """A port is none, or something else listens there."""


def check_ports(options: UpOptions) -> None:
    """Raises: PortError naming the port, what wanted it, and the option to change it."""
    wanted = (
        ("console", options.host, options.port, "--port"),
        ("worker HTTP", "127.0.0.1", options.worker_http_port, "--worker-http-port"),
        ("worker gRPC", "127.0.0.1", options.worker_grpc_port, "--worker-grpc-port"),
        ("worker metrics", "127.0.0.1", options.worker_metrics_port, "--worker-metrics-port"),
    )
    seen: dict[int, str] = {}
    for what, host, port, option in wanted:
        if not 0 < port < 65536:
            raise PortError(f"{option} is {port}: it must be a number from 1 to 65535")
        if port in seen:
            raise PortError(f"{what} and {seen[port]} both want port {port}: change {option}")
        seen[port] = what
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise PortError(
                    f"{what} cannot listen on {host}:{port} ({error.strerror}): stop what listens "
                    f"there, or choose another port with {option}"
                ) from error


def processes(options: UpOptions, environment: Mapping[str, str]) -> list[ProcessSpec]:
    """In the order of their start; Redis only where REDIS_URL does not name one."""
    env = dict(environment)
    specs = []
    if not env.get("REDIS_URL"):
        run_directory = options.data_directory / "run"
        run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = redis_server.socket_path(run_directory)
        env["REDIS_URL"] = f"unix://{path}"
        specs.append(_redis(path, env))
    env["CONCH_DATA_DIR"] = str(options.data_directory)
    env["CONCH_MODEL_REPOSITORY"] = str(options.repository)
    env["CONCH_LOAD_ALL_ON_FIRST_START"] = "true" if options.load_models else "false"
    # A name that may reach the web process: tell Django, unless somebody chose already.
    if options.host not in {"127.0.0.1", "localhost", "::1"}:
        env.setdefault("CONCH_ALLOWED_HOSTS", "*")
    specs += [_worker(options, env), _control(env), _web(options, env)]
    return specs


def console_address(options: UpOptions) -> str:
    host = "127.0.0.1" if options.host in {"0.0.0.0", "::"} else options.host  # noqa: S104
    return f"http://{host}:{options.port}/"


def _redis(path: Path, env: Mapping[str, str]) -> ProcessSpec:
    url = f"unix://{path}"
    return ProcessSpec(
        "redis",
        redis_server.command(redis_server.find_server(), path),
        env,
        lambda: redis_server.is_up(url),
        where="private, on a UNIX socket",
        ready_within_s=15,
    )


def _worker(options: UpOptions, env: Mapping[str, str]) -> ProcessSpec:
    worker_env = {
        **env,
        "CONCH_WORKER_ID": options.worker_id,
        "CONCH_HTTP_PORT": str(options.worker_http_port),
        "CONCH_GRPC_PORT": str(options.worker_grpc_port),
        "CONCH_METRICS_PORT": str(options.worker_metrics_port),
    }
    queue = f"worker.{options.worker_id}"
    argv = [
        *(sys.executable, "-m", "celery", "-A", "workers", "worker"),
        *("--pool", "threads", "--concurrency", "4", "-Q", queue, "-n", f"{queue}@%h"),
        *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
    ]
    address = f"http://127.0.0.1:{options.worker_http_port}"
    return ProcessSpec(
        "worker",
        argv,
        worker_env,
        lambda: answers(f"{address}/v2/health/live"),
        where=f"{address} (gRPC {options.worker_grpc_port}, metrics {options.worker_metrics_port})",
        stop_within_s=40,
    )


def _control(env: Mapping[str, str]) -> ProcessSpec:
    argv = [
        *(sys.executable, "-m", "celery", "-A", "console", "worker", "-B", "-Q", "console"),
        *("--pool", "threads", "--concurrency", "4", "-n", "console@%h"),
        *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
    ]
    return ProcessSpec("control", argv, env, lambda: True, where="follows deployments")


def _web(options: UpOptions, env: Mapping[str, str]) -> ProcessSpec:
    argv = [
        *(sys.executable, "-m", "uvicorn", "console.asgi:application"),
        *("--host", options.host, "--port", str(options.port)),
        *("--no-access-log", "--timeout-graceful-shutdown", "5", "--no-server-header"),
    ]
    address = console_address(options)
    return ProcessSpec("web", argv, env, lambda: answers(f"{address}healthz"), where=address)


def answers(url: str) -> bool:
    """True when something answers 200 there within a second."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def default_worker_id() -> str:
    """The host's name, cut to what a queue name may hold."""
    name = os.environ.get("CONCH_WORKER_ID") or socket.gethostname()
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name) or "worker"
