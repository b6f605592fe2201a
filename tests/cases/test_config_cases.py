"""What goes wrong with configs in real reports: refused with the field, or served as meant."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.config.check import check_model
from serving.config.findings import errors_of
from serving.config.format import to_pbtxt
from serving.config.json_form import from_json, to_json
from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server_thread import ServerThread
from tests.serving.model_files import write_identity

ANY_PORTS = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)
IO = (
    'input { name: "IN0" data_type: TYPE_FP32 dims: [ 3 ] }\n'
    'output { name: "OUT0" data_type: TYPE_FP32 dims: [ 3 ] }\n'
)
COMPLETING = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.add_input({"name": "IN0", "data_type": "TYPE_FP32", "dims": [3]})
        config.add_output({"name": "OUT0", "data_type": "TYPE_FP32", "dims": [3]})
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT0", pb_utils.get_input_tensor_by_name(item, "IN0").as_numpy())]
            )
            for item in requests
        ]
"""


class Client:
    def __init__(self, root: Path, thread: ServerThread) -> None:
        self.root = root
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{thread.ports.http}/v2", timeout=60)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        return self._http.get(path).json()

    def add(self, name: str, config: str) -> Path:
        (self.root / name / "1").mkdir(parents=True)
        (self.root / name / "config.pbtxt").write_text(config)
        return self.root / name

    def load(self, name: str) -> httpx.Response:
        return self._http.post(f"/repository/models/{name}/load", content=b"{}")

    def infer(self, name: str, shape: list[int], tensor: str = "IN0") -> httpx.Response:
        count = 1
        for size in shape:
            count *= size
        given = {"name": tensor, "shape": shape, "datatype": "FP32", "data": [1.5] * count}
        return self._http.post(f"/models/{name}/infer", content=json.dumps({"inputs": [given]}))

    def is_unharmed(self) -> bool:
        is_live = self._http.get("/health/live").status_code == 200
        return is_live and self.infer("bystander", [1, 4], "INPUT0").status_code == 200


def serve(root: Path, **options: Any) -> Iterator[Client]:
    server = ServerOptions((root,), model_control_mode=ControlMode.EXPLICIT, **options)
    thread = ServerThread(server, ANY_PORTS)
    thread.start(30)
    client = Client(root, thread)
    try:
        yield client
    finally:
        client.close()
        thread.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("models")
    write_identity(root, "bystander")
    yield from serve(root, load_models=("bystander",))


@pytest.fixture
def client(server: Client) -> Iterator[Client]:
    yield server
    assert server.is_unharmed()


@pytest.mark.parametrize(
    ("shape", "status", "words"),
    [
        ([3], 400, ["[-1,3]", "[3]", "batch"]),
        ([1, 3], 200, []),
        ([8, 3], 200, []),
        ([9, 3], 400, ["8"]),
        ([2, 4], 400, ["[-1,3]", "[2,4]"]),
    ],
)
def test_c01_batch_axis_is_implied(client: Client, shape, status, words):
    if not (client.root / "batched").exists():
        client.add("batched", f'backend: "identity"\nmax_batch_size: 8\n{IO}')
    assert client.load("batched").status_code == 200

    answer = client.infer("batched", shape)

    assert answer.status_code == status
    assert all(word in answer.text for word in words), answer.text
    assert client.get("/models/batched")["inputs"][0]["shape"] == [-1, 3]
    assert client.get("/models/batched/config")["input"][0]["dims"] == [3]


def test_c03_placeholder_of_a_data_type_is_refused_at_its_line(client: Client):
    client.add("unfilled", IO.replace("TYPE_FP32", "${TYPE}", 1))

    told = client.load("unfilled").json()["error"]

    assert "'unfilled'" in told
    assert "config.pbtxt:1:" in told
    assert "${TYPE}" in told


def tensor(body: str, more: str = "") -> str:
    return f'backend: "identity"\n{more}input {{ {body} }}\n{IO.splitlines()[1]}\n'


def sequence(body: str) -> str:
    return f'backend: "identity"\nmax_batch_size: 4\n{IO}sequence_batching {{ {body} }}\n'


def batching(body: str) -> str:
    return f'backend: "identity"\nmax_batch_size: 4\n{IO}dynamic_batching {{ {body} }}\n'


ONE_START = "control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }"
NAMED = 'name: "IN0" data_type: TYPE_FP32'


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("untyped", tensor('name: "IN0" dims: [ 3 ]'), ["IN0", "data_type"]),
        ("shapeless", tensor(NAMED), ["IN0", "dims"]),
        ("zero", tensor(f"{NAMED} dims: [ 0 ]"), ["IN0", "integer >= 1"]),
        ("negative", tensor(f"{NAMED} dims: [ -2 ]"), ["IN0", "-2"]),
        ("below", f'backend: "identity"\nmax_batch_size: -1\n{IO}', ["max_batch_size"]),
        ("nothing", IO, ["unexpected platform type", "backend"]),
        (
            "reshaped",
            tensor(f"{NAMED} dims: [ 3 ] reshape {{ shape: [ 4 ] }}"),
            ["IN0", "different size"],
        ),
        ("twice", f'backend: "identity"\n{IO}{IO.splitlines()[0]}\n', ["'IN0'", "twice"]),
        (
            "controls",
            sequence(
                f'control_input {{ name: "A" {ONE_START} }} '
                f'control_input {{ name: "B" {ONE_START} }}'
            ),
            ["CONTROL_SEQUENCE_START", "'A' and 'B'"],
        ),
        # C06
        ("large", batching("preferred_batch_size: [ 8 ]"), ["preferred", "8", "4"]),
        ("none", batching("preferred_batch_size: [ 0 ]"), ["preferred", "positive"]),
        ("levels", batching("priority_levels: 2 default_priority_level: 3"), ["range [1, 2]"]),
        (
            "ordered",
            batching("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
            ["preserve_ordering"],
        ),
        (
            "delayed",
            batching(
                "preserve_ordering: true default_queue_policy "
                "{ timeout_action: DELAY default_timeout_microseconds: 9 }"
            ),
            ["DELAY", "preserve_ordering"],
        ),
        # C07
        ("gpu", f'backend: "identity"\n{IO}instance_group {{ kind: KIND_GPU }}\n', ["no GPUs"]),
    ],
)
def test_c04_c06_c07_broken_configs_are_refused_and_name_the_field(
    client: Client, name, config, words
):
    client.add(f"bad_{name}", config)

    refused = client.load(f"bad_{name}")

    assert refused.status_code == 400
    assert all(word in refused.json()["error"] for word in words), refused.text


def test_c06_preferred_size_up_to_the_limit_loads(client: Client):
    client.add("fitting", batching("preferred_batch_size: [ 4 ]"))

    assert client.load("fitting").status_code == 200


STEP = (
    'model_name: "part" input_map { key: "x" value: "IN0" } output_map { key: "y" value: "OUT0" }'
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            f'output {{ name: "LOST" data_type: TYPE_FP32 dims: [ 3 ] }}\n'
            f"ensemble_scheduling {{ step {{ {STEP} }} }}",
            "output 'LOST' is not written",
        ),
        (
            f'input {{ name: "IDLE" data_type: TYPE_FP32 dims: [ 3 ] }}\n'
            f"ensemble_scheduling {{ step {{ {STEP} }} }}",
            "input 'IDLE' is not used",
        ),
        (
            'ensemble_scheduling { step { model_name: "part" '
            'output_map { key: "y" value: "OUT0" } } }',
            "must specify 'input_map' in step 0",
        ),
        (
            f"ensemble_scheduling {{ step {{ {STEP} }} step {{ {STEP} }} }}",
            "'OUT0' can be written only once",
        ),
    ],
    ids=["unwritten", "unread", "no-input-map", "written-twice"],
)
def test_c08_each_flaw_of_an_ensemble_graph_is_told_at_its_place(tmp_path, body, words):
    (tmp_path / "e" / "1").mkdir(parents=True)
    (tmp_path / "e" / "config.pbtxt").write_text(f'platform: "ensemble"\n{IO}{body}\n')

    errors = errors_of(check_model(tmp_path / "e").findings)

    matching = [item for item in errors if words in item.message]
    assert len(matching) == 1, [item.message for item in errors]
    assert matching[0].line == 4


def test_c10_effective_config_is_shown_and_its_export_is_the_same_config(client: Client, tmp_path):
    model = client.add("completing", 'backend: "python"\n')
    (model / "1" / "model.py").write_text(textwrap.dedent(COMPLETING))
    assert client.load("completing").status_code == 200

    config = client.get("/models/completing/config")
    metadata = client.get("/models/completing")

    assert config["input"][0] | {"data_type": "TYPE_FP32", "dims": [3]} == config["input"][0]
    assert metadata["inputs"] == [{"name": "IN0", "datatype": "FP32", "shape": [-1, 3]}]

    root = tmp_path / "again"
    (root / "completing" / "1").mkdir(parents=True)
    (root / "completing" / "1" / "model.py").write_text((model / "1" / "model.py").read_text())
    exported = to_pbtxt(from_json(json.dumps(config)))
    (root / "completing" / "config.pbtxt").write_text(exported)
    for strict in serve(root, auto_complete_config=False):
        assert strict.load("completing").status_code == 200
        again = strict.get("/models/completing/config")

    assert to_json(from_json(json.dumps(again))) == to_json(from_json(json.dumps(config)))
