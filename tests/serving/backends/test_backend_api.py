"""What authors of backends may rely on (BE-001 to BE-011), with backends written in one file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from serving.backends import governed as governed_module
from serving.backends.attributes import BackendAttributes, ExecutionPolicy, PreferredGroup
from serving.backends.base import ExecutionTimes, LoadedModel, ModelInstance, Placement
from serving.backends.registry import BackendRegistry
from serving.config.complete import complete
from serving.config.decode import InstanceKind
from serving.errors import ErrorCode, InvalidArgumentError, ServingError
from serving.in_process import ModelServer
from tests.serving.loading import config_of, context_of

IO = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
ADDING = """
from serving.backends.base import Backend, LoadedModel, TensorInstance

class Instance(TensorInstance):
    def run(self, inputs, output_names):
        return {"OUT": inputs["IN"] + %(added)s}

class Model(LoadedModel):
    def __init__(self, context):
        self.context = context
    def create_instance(self, placement):
        return Instance(self.context)

class Adding(Backend):
    name = "adding"
    def load(self, context):
        return Model(context)
"""
COUNTING = (
    ADDING.replace("2.5", "1")
    + """
    def initialize(self, config):
        with open(config["journal"], "a+") as journal:
            journal.write(f"initialize {config['default-max-batch-size']} {config['own']}\\n")
            journal.seek(0)
            lines = journal.readlines()
        if config.get("fails-once") and len(lines) == 1:
            raise ValueError("no licence")
        self.journal = config["journal"]
    def finalize(self):
        with open(self.journal, "a") as journal:
            journal.write("finalize\\n")
"""
)


def adding(number: float) -> str:
    return ADDING % {"added": number}


def write_model(root: Path, name: str = "m", extra: str = "", backend: str = "adding") -> Path:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(f'backend: "{backend}"\n{IO}{extra}')
    return root / name


def put(text: str, folder: Path, name: str = "conch_adding.py") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def answer(server: ModelServer, model: str = "m") -> float:
    got = server.infer(model, {"IN": np.zeros((1, 1), np.float32)})
    return float(got["OUT"][0, 0])


@pytest.fixture
def backends(tmp_path: Path) -> Path:
    return tmp_path / "backends"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def served(root: Path, backends: Path) -> Iterator[ModelServer]:
    with ModelServer(root, backend_directory=backends, exit_timeout_secs=5) as server:
        yield server


def test_version_folder_comes_before_model_folder_before_backend_directory(served, root, backends):
    model = write_model(root)
    put(adding(3), backends / "adding")
    assert answer_of_load(served) == 3
    put(adding(2), model)
    assert answer_of_load(served) == 2
    put(adding(1), model / "1")
    assert answer_of_load(served) == 1


def answer_of_load(server: ModelServer) -> float:
    server.load("m")
    value = answer(server)
    server.unload("m")
    return value


def test_cfg_004_runtime_names_the_file(served, root, backends):
    write_model(root, extra='runtime: "fast.py"')
    put(adding(1), backends / "adding")
    put(adding(7), backends / "adding", "fast.py")

    assert answer_of_load(served) == 7


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [("absent.so", "its runtime 'absent.so' is not in"), ("../a.so", "outside"), ("a/b.so", "out")],
)
def test_a_runtime_that_is_not_there_or_leads_out_is_refused(served, root, runtime, reason):
    write_model(root, extra=f'runtime: "{runtime}"')

    with pytest.raises(ServingError, match=reason):
        served.load("m")


def test_a_backend_directory_comes_before_what_is_built_in(served, root, backends):
    write_model(root, backend="identity")
    put(adding(4).replace('"adding"', '"identity"'), backends / "identity", "conch_identity.py")

    assert answer_of_load(served) == 4


def test_a_library_for_another_server_is_passed_over(served, root, backends, caplog):
    write_model(root, backend="identity")
    put("\x7fELF", backends / "identity", "libtriton_identity.so")

    assert answer_of_load(served) == 0
    assert "libtriton_identity.so" in caplog.text


def test_a_server_may_forbid_models_to_bring_code(root, backends):
    """As the console's workers do: what lies in the backend directory may run all the same."""
    put(adding(1), write_model(root))
    config = {"": {"allow-native-code": "false"}}
    with ModelServer(root, backend_directory=backends, backend_config=config) as server:
        with pytest.raises(ServingError, match="CONCH_ALLOW_NATIVE_CODE=true for a worker or"):
            server.load("m")
        put(adding(2), backends / "adding")
        assert answer_of_load(server) == 2


def test_the_load_log_says_where_a_backend_comes_from(served, root, backends, caplog):
    write_model(root)
    put(adding(1), backends / "adding")
    with caplog.at_level("INFO"):
        served.load("m")

    assert f"backend 'adding' from {backends}/adding/conch_adding.py" in caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("value = 1", "must define one subclass of serving.backends.base.Backend, found none"),
        (adding(1).replace('"adding"', '"other"'), "must have name = 'adding'"),
    ],
)
def test_a_file_that_is_no_backend_is_refused_with_the_reason(served, root, backends, text, reason):
    write_model(root)
    put(text, backends / "adding")

    with pytest.raises(ServingError, match=reason):
        served.load("m")


def test_be_003_be_011_initialised_once_with_its_config_and_finalised_at_the_end(
    root, backends, tmp_path
):
    """Not when the last model goes; what the core adds is in the config."""
    write_model(root, "a")
    write_model(root, "b")
    put(COUNTING % {"added": 1}, backends / "adding")
    journal = tmp_path / "journal"
    config = {"": {"journal": str(journal), "own": "all"}, "adding": {"own": "mine"}}
    with ModelServer(root, backend_directory=backends, backend_config=config) as server:
        for name in ("a", "b", "a"):
            server.load(name)
            server.unload(name)
        assert journal.read_text() == "initialize 4 mine\n"

    assert journal.read_text() == "initialize 4 mine\nfinalize\n"


def test_be_003_an_error_of_initialize_fails_the_load_and_the_next_load_tries_again(
    root, backends, tmp_path
):
    write_model(root)
    put(COUNTING % {"added": 1}, backends / "adding")
    config = {"": {"journal": str(tmp_path / "journal"), "own": "", "fails-once": "1"}}
    with ModelServer(root, backend_directory=backends, backend_config=config) as server:
        with pytest.raises(ServingError, match="could not be initialised: ValueError: no licence"):
            server.load("m")
        server.load("m")


def test_be_011_the_core_adds_its_settings_and_the_backends_own_win(tmp_path):
    given = {"": {"default-max-batch-size": "8"}, "x": {"default-max-batch-size": "16"}}
    registry = BackendRegistry(tmp_path, given, auto_complete=False)

    assert registry.config_of("identity") == {
        "auto-complete-config": "false",
        "backend-directory": str(tmp_path),
        "default-max-batch-size": "8",
        "min-compute-capability": "6",
    }
    assert registry.config_of("x")["default-max-batch-size"] == "16"


class Recording(LoadedModel):
    """Fails when two of its instances are made, or execute, at the same time."""

    def __init__(self) -> None:
        self.making, self.executing = threading.Semaphore(1), threading.Semaphore(1)
        self.was_shared = threading.Event()

    def create_instance(self, placement: Placement) -> ModelInstance:
        _alone(self.making, self.was_shared)
        outer = self

        class Instance(ModelInstance):
            def execute(self, requests, times):
                _alone(outer.executing, outer.was_shared)

        return Instance()


def _alone(semaphore: threading.Semaphore, was_shared: threading.Event) -> None:
    if not semaphore.acquire(blocking=False):
        was_shared.set()
        return
    threading.Event().wait(0.002)
    semaphore.release()


def in_threads(work, count: int = 4) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PLACE = Placement("m_0", InstanceKind.CPU)


def test_be_006_instances_are_made_one_by_one_unless_the_backend_allows_more():
    model = Recording()
    governed = governed_module.governed(model, BackendAttributes())

    in_threads(lambda: governed.create_instance(PLACE))

    assert not model.was_shared.is_set()
    assert governed_module.governed(model, BackendAttributes(parallel_instance_loading=True)) is (
        model
    )


def test_be_006_device_blocking_instances_of_one_device_execute_one_by_one():
    model = Recording()
    attributes = BackendAttributes(ExecutionPolicy.DEVICE_BLOCKING)
    governed = governed_module.governed(model, attributes)
    instances = [governed.create_instance(PLACE) for _ in range(4)]

    in_threads(lambda: instances.pop().execute([], ExecutionTimes()))

    assert not model.was_shared.is_set()


def test_a_process_of_its_own_counts_its_gpu_from_0(tmp_path):
    """It sees no other: see the plan of such a process."""
    context = context_of('name: "m" backend: "identity"', tmp_path)
    placement = Placement("m_0", InstanceKind.GPU, 3)

    assert context.cuda_number(placement) == 3
    assert replace(context, child=cast("Any", object())).cuda_number(placement) == 0


@pytest.mark.parametrize(
    ("preferred", "gpus", "wanted"),
    [
        ([PreferredGroup(InstanceKind.GPU, 2), PreferredGroup(InstanceKind.CPU, 3)], 0, ("CPU", 3)),
        ([PreferredGroup(InstanceKind.GPU, 2), PreferredGroup(InstanceKind.CPU, 3)], 1, ("GPU", 2)),
        ([PreferredGroup(InstanceKind.GPU, 2, (5,)), PreferredGroup(InstanceKind.MODEL)], 1,
         ("MODEL", 1)),
        ([], 0, ("CPU", 1)),
    ],
)  # fmt: skip
def test_be_006_the_first_preferred_group_that_the_machine_can_have_is_taken(
    preferred, gpus, wanted
):
    config = config_of(f'backend: "adding" {IO}')

    complete(config, name="m", model_directory=None, gpu_count=gpus, preferred=preferred)

    group = config.instance_group[0]
    assert (group.Kind.Name(group.kind), group.count) == (f"KIND_{wanted[0]}", wanted[1])


def test_be_006_a_preferred_group_leaves_a_config_with_groups_alone():
    config = config_of(f'backend: "adding" {IO} instance_group {{ count: 5 kind: KIND_CPU }}')

    preferred = [PreferredGroup(InstanceKind.CPU, 3)]
    complete(config, name="m", model_directory=None, preferred=preferred)

    assert [group.count for group in config.instance_group] == [5]


def test_a_backend_of_a_file_runs_in_a_process_of_its_own_too(served, root, backends):
    isolated = 'parameters { key: "instance_isolation" value { string_value: "process" } }'
    write_model(root, extra=isolated)
    put(adding(6), backends / "adding")

    assert answer_of_load(served) == 6


def test_an_unknown_backend_is_told_where_it_was_looked_for(served, root):
    write_model(root)

    with pytest.raises(ServingError) as caught:
        served.load("m")

    assert "libtriton_adding.so or conch_adding.py in m/1, models/m, backends/adding" in (
        caught.value.message
    )
    assert caught.value.code is ErrorCode.INVALID_ARG


def test_runtime_model_py_needs_a_backend_that_runs_it(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"its runtime 'model.py' is not in"):
        BackendRegistry(tmp_path).get("onnxruntime", runtime="model.py")
