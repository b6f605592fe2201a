"""Which processes `manage.py up` starts, and what it refuses."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from console.supervision import plan, redis_server
from tests.ports import free_ports

OPTIONS = plan.UpOptions(
    data_directory=Path("data"),
    repository=Path("models"),
    host="127.0.0.1",
    port=8080,
    worker_id="box-1",
    worker_http_port=8000,
    worker_grpc_port=8001,
    worker_metrics_port=8002,
    load_models=True,
)


def options(tmp_path: Path, **changes: object) -> plan.UpOptions:
    return dataclasses.replace(OPTIONS, data_directory=tmp_path, **changes)  # type: ignore[arg-type]


def test_without_a_redis_url_a_private_redis_comes_first(tmp_path: Path) -> None:
    specs = plan.processes(options(tmp_path), {"PATH": "/usr/bin"})

    assert [spec.name for spec in specs] == ["redis", "worker", "control", "web"]
    assert specs[1].env["REDIS_URL"].startswith("unix://")
    assert {spec.env.get("REDIS_URL") for spec in specs[1:]} == {specs[1].env["REDIS_URL"]}


def test_with_a_redis_url_that_one_is_used(tmp_path: Path) -> None:
    specs = plan.processes(options(tmp_path), {"REDIS_URL": "redis://broker:6379/0"})

    assert [spec.name for spec in specs] == ["worker", "control", "web"]
    assert specs[0].env["REDIS_URL"] == "redis://broker:6379/0"


def test_the_worker_listens_on_its_own_queue(tmp_path: Path) -> None:
    specs = plan.processes(options(tmp_path), {"REDIS_URL": "redis://broker"})

    assert "worker.box-1" in specs[0].argv
    assert specs[0].env["CONCH_WORKER_ID"] == "box-1"


def test_a_taken_port_is_named_with_its_option(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        web, http = free_ports(2)

        with pytest.raises(plan.PortError, match=rf"{port}.*--worker-grpc-port"):
            plan.check_ports(
                options(tmp_path, port=web, worker_http_port=http, worker_grpc_port=port)
            )


@pytest.mark.parametrize("number", [-1, 0, 65536])
def test_a_number_that_is_no_port_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(plan.PortError, match=f"--port is {number}: .* from 1 to 65535"):
        plan.check_ports(options(tmp_path, port=number))


def test_a_port_from_the_environment_that_is_no_number_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONCH_PORT", "eighty")

    with pytest.raises(CommandError, match="--port: invalid int value: 'eighty'"):
        call_command("up")


def test_two_services_on_one_port_are_refused(tmp_path: Path) -> None:
    with pytest.raises(plan.PortError, match="both want port 8080"):
        plan.check_ports(options(tmp_path, port=8080, worker_http_port=8080))


def test_a_private_redis_answers_on_its_socket_and_nowhere_else(tmp_path: Path) -> None:
    path = redis_server.socket_path(tmp_path)
    command = redis_server.command(redis_server.find_server(), path)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 10
            while not redis_server.is_up(f"unix://{path}"):
                assert time.monotonic() < deadline
            assert path.stat().st_mode & 0o077 == 0
        finally:
            server.terminate()


def test_a_deep_data_directory_still_gets_a_socket_that_fits(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(["a-long-directory-name"] * 6))

    assert len(str(redis_server.socket_path(deep))) < 108
