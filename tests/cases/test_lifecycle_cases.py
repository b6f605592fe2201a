"""What goes wrong with names, versions, load and unload in real reports, as HTTP clients see it."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server_thread import ServerThread
from tests.serving.model_files import IDENTITY, write_identity
from tests.waiting import wait_until_blocking

ANY_PORTS = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)
PID_MODEL = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            pid = np.array([os.getpid()], dtype=np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)]) for _ in requests]
"""
BAD_START = """
    class TritonPythonModel:
        def initialize(self, args):
            raise RuntimeError("the weights are for another model")
        def execute(self, requests):
            return []
"""
PYTHON = """
backend: "python"
max_batch_size: 0
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
OVERRIDE: dict[str, Any] = {
    "backend": "identity",
    "max_batch_size": 2,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
}


class Client:
    """A server over `root` that also serves the model "bystander"."""

    def __init__(self, thread: ServerThread) -> None:
        self._thread = thread
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{thread.ports.http}/v2", timeout=30)
        self.root: Path = Path(thread.options.model_repositories[0])

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, body: object = None, *, raw: bytes | None = None) -> httpx.Response:
        content = raw if raw is not None else json.dumps(body or {}).encode()
        return self._http.post(path, content=content)

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path)

    def load(self, name: str, **parameters: object) -> httpx.Response:
        body = {"parameters": parameters} if parameters else {}
        return self.post(f"/repository/models/{name}/load", body)

    def unload(self, name: str) -> httpx.Response:
        return self.post(f"/repository/models/{name}/unload")

    def infer(self, name: str, version: str = "") -> httpx.Response:
        path = f"/models/{name}" + (f"/versions/{version}" if version else "")
        tensor = {"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
        return self.post(f"{path}/infer", {"inputs": [tensor]})

    def pid(self, name: str, version: int) -> int:
        tensor = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [0]}
        answer = self.post(f"/models/{name}/versions/{version}/infer", {"inputs": [tensor]})
        return int(answer.json()["outputs"][0]["data"][0])

    def rows(self, name: str, body: object = None) -> list[tuple[str, str, str]]:
        return [
            (row.get("version", ""), row.get("state", ""), row.get("reason", ""))
            for row in self.post("/repository/index", body).json()
            if row["name"] == name
        ]

    def ready_versions(self, name: str) -> list[str]:
        return [version for version, state, _ in self.rows(name) if state == "READY"]

    def requests_at_work(self, name: str) -> int:
        return self._thread.invoke(lambda: self._thread.server.model(name).inflight_count)

    def is_unharmed(self) -> bool:
        return (
            self.get("/health/live").status_code == 200
            and self.infer("bystander").status_code == 200
        )


Start = Callable[..., Client]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    root = tmp_path / "models"
    root.mkdir()
    write_identity(root, "bystander")
    opened: list[tuple[ServerThread, Client]] = []

    def run(*more: Path, **options: Any) -> Client:
        options.setdefault("model_control_mode", ControlMode.EXPLICIT)
        if options["model_control_mode"] is ControlMode.EXPLICIT:
            options["load_models"] = ("bystander",)
        thread = ServerThread(ServerOptions((root, *more), **options), ANY_PORTS)
        thread.start(30)
        opened.append((thread, Client(thread)))
        return opened[-1][1]

    yield run
    for thread, client in opened:
        assert client.is_unharmed()
        client.close()
        thread.stop()


@pytest.fixture
def client(start: Start) -> Client:
    return start()


def write_python(root: Path, name: str, source: str, *versions: int, extra: str = "") -> Path:
    model = root / name
    for version in versions:
        (model / str(version)).mkdir(parents=True, exist_ok=True)
        (model / str(version) / "model.py").write_text(textwrap.dedent(source))
    (model / "config.pbtxt").write_text(PYTHON + extra)
    return model


# Part A


def test_c02_name_in_the_config_must_be_the_folders(client):
    model = write_identity(client.root, "cat", extra='name: "dog"\n')

    refused = client.load("cat")
    assert refused.status_code == 400
    assert "cat" in refused.json()["error"]
    assert "dog" in refused.json()["error"]
    [(_, state, reason)] = client.rows("cat")
    assert state == "UNAVAILABLE"
    assert "dog" in reason

    write_identity(client.root, model.name)
    assert client.load("cat").status_code == 200
    assert client.get("/models/cat").json()["name"] == "cat"


def test_c03_placeholder_is_refused_with_model_and_line(client):
    model = client.root / "template"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'name: "template"\nbackend: "identity"\nmax_batch_size: ${BATCH}\n'
    )

    told = client.load("template").json()["error"]

    assert "'template'" in told
    assert "config.pbtxt:3:" in told


@pytest.mark.parametrize(
    "group",
    ["kind: KIND_GPU", "kind: KIND_CPU gpus: [ 0 ]", "kind: KIND_MODEL gpus: [ 0 ]"],
)
def test_c07_instance_group_that_needs_a_gpu_is_refused_where_there_is_none(client, group):
    write_identity(client.root, "m", extra=f"instance_group {{ count: 1 {group} }}\n")
    assert client.load("m").status_code == 400
    assert client.rows("m")[0][1] == "UNAVAILABLE"


def test_c07_model_without_instance_group_runs_on_the_cpu(client):
    write_identity(client.root, "m")
    client.load("m")
    [group] = client.get("/models/m/config").json()["instance_group"]
    assert (group["kind"], group["count"]) == ("KIND_CPU", 1)


# Part B: versions


@pytest.fixture
def crowded(client: Client) -> Path:
    """Versions 1, 2 and 10 among folders and a file that are none."""
    model = write_identity(client.root, "m", versions=(1, 2, 10))
    for name in ("03", "v4", ".ipynb_checkpoints"):
        (model / name).mkdir()
    (model / "5").write_text("a file")
    return model


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", ["10"]),
        ("version_policy { latest { num_versions: 2 } }", ["2", "10"]),
        ("version_policy { all { } }", ["1", "2", "10"]),
        ("version_policy { specific { versions: [ 1, 10 ] } }", ["1", "10"]),
    ],
    ids=["default", "latest-2", "all", "specific"],
)
def test_c11_policy_chooses_among_real_versions_and_overlooks_the_rest(
    client, crowded, policy, expected
):
    write_identity(client.root, "m", versions=(), extra=policy + "\n")
    assert client.load("m").status_code == 200
    assert client.ready_versions("m") == expected


def test_c11_model_without_a_usable_version_is_refused(client):
    model = write_identity(client.root, "m", versions=())
    (model / "v1").mkdir()
    refused = client.load("m")
    assert refused.status_code == 400
    assert "at least one version must be available" in refused.json()["error"]


def test_c12_highest_ready_version_answers_unless_one_is_named(client, crowded):
    write_identity(client.root, "m", versions=(), extra="version_policy { all { } }\n")
    client.load("m")

    assert client.infer("m").json()["model_version"] == "10"
    assert client.infer("m", "1").json()["model_version"] == "1"
    assert client.infer("m", "7").status_code == 404
    # No path of the protocol, as in a real Triton: a version is a number.
    assert client.infer("m", "abc").status_code == 404


def test_c13_unknown_names_leave_no_trace(client):
    refused = client.load("nope")
    assert refused.status_code in (400, 500)
    assert "failed to poll from model repository" in refused.json()["error"]
    assert client.unload("nope").status_code == 200
    assert client.infer("nope").status_code in (400, 404)
    assert client.rows("nope") == []


def test_c13_model_that_is_unloaded_is_404_and_one_that_loads_is_503(client):
    write_identity(client.root, "gone")
    client.load("gone")
    client.unload("gone")
    wait_until_blocking(lambda: client.rows("gone") == [("1", "UNAVAILABLE", "unloaded")])
    assert client.infer("gone").status_code == 404

    slow = "import time\ntime.sleep(1.5)\n" + textwrap.dedent(PID_MODEL)
    write_python(client.root, "slow", slow, 1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        loading = pool.submit(client.load, "slow")
        wait_until_blocking(lambda: client.rows("slow") == [("1", "LOADING", "")])
        assert client.infer("slow").status_code == 503
        assert client.infer("slow", "1").status_code == 503
        assert loading.result().status_code == 200


def test_c14_new_version_appears_on_load_and_the_old_one_leaves(client):
    write_identity(client.root, "m")
    client.load("m")
    write_identity(client.root, "m", versions=(2,))

    assert client.load("m").status_code == 200

    assert client.infer("m").json()["model_version"] == "2"
    wait_until_blocking(lambda: client.ready_versions("m") == ["2"])


def test_c14_unchanged_version_keeps_its_process_when_another_one_comes(client):
    policy = "version_policy { all { } }\n"
    write_python(client.root, "m", PID_MODEL, 1, extra=policy)
    client.load("m")
    before = client.pid("m", 1)

    write_python(client.root, "m", PID_MODEL, 2, extra=policy)
    assert client.load("m").status_code == 200

    assert client.pid("m", 1) == before
    assert client.pid("m", 2) != before


def test_c16_every_load_of_a_broken_model_fails_for_the_same_reason(client):
    write_python(client.root, "m", BAD_START, 1)
    told = [client.load("m") for _ in range(3)]

    assert [answer.status_code for answer in told] == [400] * 3
    assert all("the weights are for another model" in answer.json()["error"] for answer in told)
    [(_, state, reason)] = client.rows("m")
    assert state == "UNAVAILABLE"
    assert "the weights are for another model" in reason


def test_c19_running_request_survives_the_unload_and_new_ones_are_refused(client):
    write_identity(client.root, "m", delay_ms=800)
    client.load("m")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(client.infer, "m")
        wait_until_blocking(lambda: client.requests_at_work("m") == 1)
        assert client.unload("m").status_code == 200
        assert client.infer("m").status_code in (404, 503)
        assert running.result().status_code == 200
    wait_until_blocking(lambda: client.rows("m") == [("1", "UNAVAILABLE", "unloaded")])


# Load parameters


def test_c21_config_must_be_a_string_with_json(client):
    write_identity(client.root, "m")
    refused = client.load("m", config=OVERRIDE)
    assert refused.status_code == 400
    assert "string" in refused.json()["error"]


def test_c21_override_holds_until_the_next_plain_load(client):
    write_identity(client.root, "m")
    on_disk = (client.root / "m" / "config.pbtxt").read_text()

    assert client.load("m", config=json.dumps(OVERRIDE)).status_code == 200
    assert client.get("/models/m/config").json()["max_batch_size"] == 2
    assert (client.root / "m" / "config.pbtxt").read_text() == on_disk

    assert client.load("m").status_code == 200
    assert client.get("/models/m/config").json()["max_batch_size"] == 8


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"inputs": []}, "inputs"),
        ({"input": [{"name": "X", "datatype": "FP32", "dims": [1]}]}, "datatype"),
        ({**OVERRIDE, "parameters": [{"key": "a", "value": {"string_value": "b"}}]}, "parameters"),
    ],
)
def test_c21_keys_that_no_config_has_are_named(client, config, told):
    write_identity(client.root, "m")
    refused = client.load("m", config=json.dumps(config))
    assert refused.status_code == 400
    assert told in refused.json()["error"]


def test_c21_unknown_parameter_is_refused(client):
    write_identity(client.root, "m")
    refused = client.load("m", confg="{}")
    assert refused.status_code == 400
    assert "confg" in refused.json()["error"]


def test_c21_files_need_a_config_and_replace_the_model_until_the_next_plain_load(client):
    write_identity(client.root, "m")
    files = {"file:7/anything": base64.b64encode(b"x").decode()}
    refused = client.load("m", **files)
    assert refused.status_code == 400
    assert "must be specified for model file override" in refused.json()["error"]

    assert client.load("m", config=json.dumps(OVERRIDE), **files).status_code == 200
    assert client.ready_versions("m") == ["7"]
    assert sorted(path.name for path in (client.root / "m").iterdir()) == ["1", "config.pbtxt"]

    assert client.load("m").status_code == 200
    wait_until_blocking(lambda: client.ready_versions("m") == ["1"])


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "1/../../../tmp/x",
        "/etc/x",
        "1//x",
        "./x",
        "1/./x",
        "..",
        "",
        "1\\..\\x",
        "1/x\0y",
    ],
)
def test_c22_file_that_would_leave_its_directory_is_refused_and_nothing_is_written(
    client, tmp_path, monkeypatch, name
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(tmp_path.rglob("*"))

    refused = client.load(
        "fresh", config=json.dumps(OVERRIDE), **{f"file:{name}": base64.b64encode(b"x").decode()}
    )

    assert refused.status_code == 400
    assert sorted(tmp_path.rglob("*")) == before
    assert client.rows("fresh") == []


# Control modes and the index


@pytest.mark.parametrize("mode", [ControlMode.NONE, ControlMode.POLL])
def test_c25_load_and_unload_are_refused_outside_of_explicit_mode(start, mode):
    client = start(model_control_mode=mode)
    before = client.rows("bystander")

    for answer in (client.load("bystander"), client.unload("bystander")):
        assert answer.status_code == 503
        assert "explicit" in answer.json()["error"]

    assert client.rows("bystander") == before


def test_c26_index_takes_an_empty_body_and_filters_by_ready(client):
    write_identity(client.root, "never-loaded")
    for raw in (b"", b"{}"):
        assert {row["name"] for row in client.post("/repository/index", raw=raw).json()} == {
            "bystander",
            "never-loaded",
        }
    ready = client.post("/repository/index", {"ready": True}).json()
    assert [(row["name"], row["state"]) for row in ready] == [("bystander", "READY")]


@pytest.mark.parametrize(
    "raw",
    [b'{"ready": "yes"}', b'{"ready": ' + b"[" * 250_000 + b"]" * 250_000 + b"}", b"{", b"[]"],
    ids=["text", "deep", "cut", "list"],
)
def test_c26_index_body_that_is_wrong_is_a_400(client, raw):
    assert client.post("/repository/index", raw=raw).status_code == 400


def test_c26_model_in_two_repositories_is_unavailable_and_says_why(start, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    write_identity(second, "both")
    client = start(second)
    write_identity(client.root, "both")

    assert client.load("both").status_code == 400
    assert client.rows("both") == [("", "UNAVAILABLE", "model appears in two or more repositories")]


def test_failed_model_keeps_the_server_unready_and_an_unloaded_one_does_not(client):
    write_identity(client.root, "m")
    client.load("m")
    client.unload("m")
    assert client.get("/health/ready").status_code == 200

    write_identity(client.root, "m", extra="nonsense: 1\n")
    client.load("m")
    assert client.get("/health/ready").status_code != 200
    assert client.get("/models/m/ready").status_code != 200

    (client.root / "m" / "config.pbtxt").write_text(IDENTITY)
    client.load("m")
    assert client.get("/health/ready").status_code == 200
