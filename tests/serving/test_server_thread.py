from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from pathlib import Path

import pytest

from serving.errors import ModelLoadError, NotFoundError, UnavailableError
from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server_thread import ServerThread
from tests.serving.model_files import identity_request, write_identity
from tests.waiting import wait_until_blocking

ANY_PORTS = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)


def test_thread_serves_and_answers_calls_from_other_threads(tmp_path: Path):
    write_identity(tmp_path, "m")
    thread = ServerThread(
        ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT), ANY_PORTS
    )
    thread.start(30)
    try:
        assert thread.ports.http
        assert thread.ports.grpc
        assert thread.ports.metrics
        thread.call(thread.server.load_model("m"), 10)
        assert thread.invoke(lambda: thread.server.ready_versions("m")) == [1]
        response = thread.call(thread.server.infer_async(identity_request("m")), 10)
        assert response.outputs
        with pytest.raises(NotFoundError):
            thread.invoke(lambda: thread.server.model("nope"))
    finally:
        thread.stop()

    assert not thread.is_alive
    with pytest.raises(UnavailableError, match="the server has stopped"):
        thread.invoke(lambda: thread.server.is_ready())


def test_caller_that_waits_hears_of_the_end(tmp_path: Path):
    thread = ServerThread(ServerOptions((tmp_path,)), ANY_PORTS)
    thread.start(30)
    outcomes: list[BaseException] = []

    def wait() -> None:
        try:
            thread.call(asyncio.Event().wait())
        except BaseException as error:
            outcomes.append(error)

    caller = threading.Thread(target=wait)
    caller.start()
    wait_until_blocking(lambda: thread.invoke(lambda: len(asyncio.all_tasks())) > 3)
    thread.stop()
    caller.join(5)

    assert [type(outcome) for outcome in outcomes] == [concurrent.futures.CancelledError]


def test_failed_start_raises_and_leaves_nothing_running(tmp_path: Path):
    write_identity(tmp_path, "bad", extra="nonsense")
    thread = ServerThread(ServerOptions((tmp_path,)), ANY_PORTS)
    with pytest.raises(ModelLoadError, match="bad"):
        thread.start(30)
    assert not thread.is_alive


def test_taken_port_is_an_error_of_start(tmp_path: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        options = FrontendOptions(http_port=port, allow_grpc=False, allow_metrics=False)
        thread = ServerThread(ServerOptions((tmp_path,)), options)
        with pytest.raises(OSError, match=str(port)):
            thread.start(30)
    assert not thread.is_alive
