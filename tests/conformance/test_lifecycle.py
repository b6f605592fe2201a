"""Load, unload, versions and index as clients of Triton know them, over HTTP and gRPC.

The clients are NVIDIA's own, unmodified; the models are identities, so that only the life cycle is
under test.
"""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server_thread import ServerThread
from tests.serving.model_files import IDENTITY, write_identity
from tests.waiting import wait_until_blocking

ANY_PORTS = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)
OVERRIDE: dict[str, Any] = {
    "backend": "identity",
    "max_batch_size": 2,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    root = tmp_path / "models"
    root.mkdir()
    options = ServerOptions((root,), model_control_mode=ControlMode.EXPLICIT)
    thread = ServerThread(options, ANY_PORTS)
    thread.start(30)
    yield thread
    thread.stop()


@pytest.fixture
def root(server: ServerThread) -> Path:
    return server.options.model_repositories[0]


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: ServerThread) -> Iterator[Any]:
    if request.param == "http":
        made: Any = http_client.InferenceServerClient(f"127.0.0.1:{server.ports.http}")
    else:
        made = grpc_client.InferenceServerClient(f"127.0.0.1:{server.ports.grpc}")
    yield made
    made.close()


def index(client: Any) -> list[tuple[str, str, str, str]]:
    """Rows as (name, version, state, reason)."""
    answer = client.get_model_repository_index()
    if isinstance(answer, list):
        keys = ("name", "version", "state", "reason")
        return [tuple(row.get(key, "") for key in keys) for row in answer]
    return [(row.name, row.version, row.state, row.reason) for row in answer.models]


def infer(client: Any, model: str, version: str = "") -> str:
    """The version that answered."""
    module = http_client if isinstance(client, http_client.InferenceServerClient) else grpc_client
    tensor = module.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    response = client.infer(model, [tensor], model_version=version).get_response()
    return str(response["model_version"] if isinstance(response, dict) else response.model_version)


def max_batch_size(client: Any, model: str) -> int:
    config = client.get_model_config(model)
    return int(
        config["max_batch_size"] if isinstance(config, dict) else config.config.max_batch_size
    )


def refused(call: Any, *arguments: Any, **keywords: Any) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **keywords)
    assert caught.value.status() not in ("500", "StatusCode.INTERNAL", "StatusCode.UNKNOWN")
    return str(caught.value.message())


def test_model_goes_from_unasked_over_ready_to_unloaded(client, root):
    write_identity(root, "m")
    assert index(client) == [("m", "", "", "")]

    client.load_model("m")
    assert client.is_model_ready("m")
    assert index(client) == [("m", "1", "READY", "")]

    client.unload_model("m")
    wait_until_blocking(lambda: index(client) == [("m", "1", "UNAVAILABLE", "unloaded")])
    assert not client.is_model_ready("m")
    assert client.is_server_ready()


def test_unknown_names(client, root):
    assert "failed to poll from model repository" in refused(client.load_model, "nope")
    client.unload_model("nope")
    assert index(client) == []
    refused(infer, client, "nope")


def test_answering_version_is_the_highest_or_the_one_asked_for(client, root):
    write_identity(root, "m", versions=(1, 10), extra="version_policy { all {} }")
    client.load_model("m")

    assert infer(client, "m") == "10"
    assert infer(client, "m", "1") == "1"
    assert "version 7" in refused(infer, client, "m", "7")


def test_new_version_appears_on_load_and_the_old_one_goes(client, root):
    write_identity(root, "m")
    client.load_model("m")
    write_identity(root, "m", versions=(2,))
    client.load_model("m")

    assert infer(client, "m") == "2"
    wait_until_blocking(lambda: ("m", "1", "UNAVAILABLE", "unloaded") in index(client))


def test_unchanged_version_is_not_restarted_by_a_load(client, root, server):
    write_identity(root, "m", extra="version_policy { all {} }")
    client.load_model("m")
    before = server.invoke(lambda: server.server.model("m", 1))
    (root / "m" / "2").mkdir()
    client.load_model("m")

    assert infer(client, "m") == "2"
    assert server.invoke(lambda: server.server.model("m", 1)) is before


def test_load_tells_the_truth_every_time_and_keeps_what_served(client, root):
    write_identity(root, "m")
    client.load_model("m")
    (root / "m" / "config.pbtxt").write_text(IDENTITY + "max_batch_sise: 4\n")

    messages = {refused(client.load_model, "m") for _ in range(3)}
    [message] = messages
    assert "load failed for model 'm'" in message
    assert "config.pbtxt:5:1" in message
    assert infer(client, "m") == "1"


def test_running_request_survives_an_unload(client, root, server):
    write_identity(root, "m", delay_ms=500)
    client.load_model("m")
    other = http_client.InferenceServerClient(f"127.0.0.1:{server.ports.http}")
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        running = threads.submit(infer, other, "m")
        wait_until_blocking(lambda: server.invoke(lambda: server.server.model("m").inflight_count))
        client.unload_model("m")
        refused(infer, client, "m")
        assert running.result(10) == "1"
    other.close()
    wait_until_blocking(lambda: index(client) == [("m", "1", "UNAVAILABLE", "unloaded")])


def test_config_override_holds_until_the_next_plain_load(client, root):
    write_identity(root, "m")
    client.load_model("m", config=json.dumps(OVERRIDE))
    assert max_batch_size(client, "m") == 2
    client.load_model("m")
    assert max_batch_size(client, "m") == 8


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"inputs": []}, "inputs"),
        ({**OVERRIDE, "input": [{"name": "INPUT0", "datatype": "FP32"}]}, "datatype"),
        ({**OVERRIDE, "parameters": [{"key": "a", "value": "b"}]}, "parameters"),
        ({**OVERRIDE, "max_batch_size": "many"}, "max_batch_size"),
        ({**OVERRIDE, "name": "other"}, "other"),
    ],
)
def test_config_override_that_is_wrong_names_the_key(client, root, override, words):
    write_identity(root, "m")
    client.load_model("m")
    assert words in refused(client.load_model, "m", config=json.dumps(override))
    assert infer(client, "m") == "1"


def test_files_replace_the_directory_until_the_next_plain_load(client, root):
    write_identity(root, "m")
    before = sorted(str(path) for path in root.rglob("*"))
    client.load_model("m", config=json.dumps(OVERRIDE), files={"file:3/model.bin": b"weights"})
    assert infer(client, "m") == "3"
    assert sorted(str(path) for path in root.rglob("*")) == before

    client.load_model("m")
    assert infer(client, "m") == "1"
    message = refused(client.load_model, "m", files={"file:1/model.py": b"x"})
    assert "must be specified for model file override" in message


@pytest.mark.parametrize("name", ["../../x", "1/../../../etc/x", "/etc/x", "1//x", ""])
def test_files_stay_inside(client, root, name):
    write_identity(root, "m")
    files = {f"file:{name}": b"x"}
    assert "model file override" in refused(
        client.load_model, "m", config=json.dumps(OVERRIDE), files=files
    )
    assert sorted(path.name for path in root.iterdir()) == ["m"]


def test_failed_model_makes_the_server_not_ready_but_live(client, root):
    write_identity(root, "good")
    write_identity(root, "bad", extra="nonsense: 1\n")
    client.load_model("good")
    refused(client.load_model, "bad")

    assert client.is_server_live()
    assert not client.is_server_ready()
    assert infer(client, "good") == "1"
    client.unload_model("bad")
    assert client.is_server_ready()


@pytest.mark.parametrize("mode", [ControlMode.NONE, ControlMode.POLL])
def test_load_and_unload_are_refused_in_other_modes(tmp_path, mode):
    write_identity(tmp_path, "m")
    thread = ServerThread(ServerOptions((tmp_path,), model_control_mode=mode), ANY_PORTS)
    thread.start(30)
    client = http_client.InferenceServerClient(f"127.0.0.1:{thread.ports.http}")
    try:
        for call in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException) as caught:
                call("m")
            assert caught.value.status() == "503"
        assert index(client) == [("m", "1", "READY", "")]
    finally:
        client.close()
        thread.stop()
