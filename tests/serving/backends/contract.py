"""What every backend must do, written once: subclass `BackendContract` and say what to run.

A subclass names its backend and defines the class-scoped fixture `subject`; every test here then
runs for it, on one server in this process. Source: spec BE-001..BE-009, backends of issue 7.

    class TestMyBackend(BackendContract):
        backend = "mine"

        @pytest.fixture(scope="class")
        @classmethod
        def subject(cls):
            return Subject(config=CONFIG, write=write_model, inputs=rows, expected=answers)
"""

from __future__ import annotations

import gc
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes  # noqa: F401 - NumPy learns bfloat16
import numpy as np
import pytest

from serving.backends.installed import RUNTIMES
from serving.datatypes import BY_DTYPE
from serving.errors import ErrorCode, ServingError
from serving.in_process import ModelServer
from serving.instance.base import InstanceHost
from serving.instance.process import ProcessHost
from tests.waiting import wait_until_blocking

Arrays = dict[str, np.ndarray]
DYNAMIC = "dynamic_batching { preferred_batch_size: [%d] max_queue_delay_microseconds: 2000000 }"
PROCESS = 'parameters { key: "instance_isolation" value { string_value: "process" } }'
_MAX_ERROR_CHARACTERS = 600
_CALLER = (ErrorCode.INVALID_ARG, ErrorCode.UNSUPPORTED)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model of the backend under test, and what it must answer."""

    config: str
    """Whole, with inputs and outputs, but without name, dynamic_batching and instance_group. With
    max_batch_size 4 or more where the model batches."""
    write: Callable[[Path], object]
    """Puts the model's files into a version folder; called once for the class."""
    inputs: Callable[[int], Arrays]
    """Of a request of so many rows, each row unlike every other; the number is 1 where the model
    does not batch."""
    expected: Callable[[Arrays], Arrays]
    """What must come back for these inputs."""
    rtol: float = 1e-5
    atol: float = 1e-6
    batches: bool = True
    completes: bool = True
    """A config with nothing but the backend's name is completed from the model's files."""
    completion_config: str = ""
    """What such a config says besides, where the backend needs it."""
    has_fixed_rank: bool = True
    """The config says how many dimensions the first input has."""
    misfit: Callable[[], Arrays] | None = None
    """Inputs that the config allows and the model itself refuses; None where there are none."""
    has_file: bool = True
    """The model is more than its config."""
    runtime_module: str = ""
    """The module of the runtime, where the server itself imports it: blocked to see what is said
    when it is missing."""


class BackendContract:
    """See the module; `served` is a server with the subject under several configs."""

    backend: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def repository(cls, subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
        root = tmp_path_factory.mktemp(f"contract_{cls.backend}")
        (root / "model" / "1").mkdir(parents=True)
        subject.write(root / "model" / "1")
        _configure(root, "model", subject.config)
        return root

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, repository: Path) -> Iterator[ModelServer]:
        with ModelServer(repository, exit_timeout_secs=5) as server:
            server.load("model")
            yield server

    # Loading

    def test_a_loaded_model_tells_its_signature(self, served, subject):
        metadata = served.model("model").metadata()
        sent = subject.inputs(1)
        wanted = subject.expected(sent)

        told = {item["name"]: item["datatype"] for item in metadata["inputs"]}
        assert told == {name: BY_DTYPE[array.dtype].name for name, array in sent.items()}
        assert wanted.keys() <= {item["name"] for item in metadata["outputs"]}
        assert served.model("model").config()["backend"] == self.backend

    def test_a_config_that_says_nothing_is_completed_from_the_model(
        self, served, subject, repository
    ):
        """AUT-03: inputs and outputs, and the answers are those of the full config."""
        if not subject.completes:
            pytest.skip(f"the {self.backend} backend completes no config: its model has no names")
        text = f'backend: "{self.backend}"\n' + subject.completion_config
        with _another(served, repository, "bare", text) as model:
            given, found = served.model("model").config(), model.config()
            for side in ("input", "output"):
                assert _types(found[side]) == _types(given[side])
            _check(subject, model.infer(sent := subject.inputs(1)), sent)

    def test_a_model_without_its_file_is_refused_by_name(self, served, subject, repository):
        if not subject.has_file:
            pytest.skip(f"a model of the {self.backend} backend is its config alone")
        _configure(repository, "hollow", subject.config)
        (repository / "hollow" / "1").mkdir()

        assert "hollow" in _refused(served, "hollow")

    def test_a_damaged_model_file_is_refused_in_a_few_words(self, served, subject, repository):
        """Model and cause, not the runtime's trace."""
        if not subject.has_file:
            pytest.skip(f"a model of the {self.backend} backend is its config alone")
        _copy(repository, "damaged", subject.config)
        for path in (repository / "damaged" / "1").rglob("*"):
            if path.is_file():
                path.write_bytes(b"\x00 this ( is no model")

        assert "damaged" in _refused(served, "damaged")

    def test_a_missing_runtime_is_told_with_the_command_that_brings_it(
        self, subject, repository, monkeypatch
    ):
        if not subject.runtime_module:
            pytest.skip(f"the {self.backend} backend needs no package in the server's process")
        monkeypatch.setitem(sys.modules, subject.runtime_module, None)  # as if not installed

        with (
            ModelServer(repository, exit_timeout_secs=5) as server,
            pytest.raises(ServingError) as caught,
        ):
            server.load("model")

        assert f"the {self.backend} backend cannot be used" in caught.value.message
        install = RUNTIMES[self.backend].install
        assert install in caught.value.message  # the words of the page Backends

    def test_unloading_frees_the_model_and_it_loads_again(self, served, subject, repository):
        with _another(served, repository, "passing", subject.config) as model:
            sent = subject.inputs(1)
            model.infer(sent)
            core = served.thread.invoke(lambda: served.thread.server.model("passing", -1))
            kept = weakref.ref(core)
            del core
            served.unload("passing")

            wait_until_blocking(lambda: gc.collect() >= 0 and kept() is None, 10)
            assert not model.is_ready()
            served.load("passing")
            _check(subject, model.infer(sent), sent)

    # Answers

    def test_one_row_is_answered(self, served, subject):
        sent = subject.inputs(1)

        _check(subject, served.infer("model", sent), sent)

    def test_several_rows_in_one_request_are_answered(self, served, subject):
        _needs_batches(subject)
        for rows in (2, 4):
            sent = subject.inputs(rows)
            _check(subject, served.infer("model", sent), sent)

    def test_requests_that_share_a_batch_get_their_own_rows(self, served, subject, repository):
        _needs_batches(subject)
        text = subject.config + "\n" + DYNAMIC % 4
        with _another(served, repository, "mixing", text) as model:
            rows = subject.inputs(4)
            sent = [_rows(rows, start, end) for start, end in ((0, 1), (1, 3), (3, 4))]

            answers = [model.submit(item) for item in sent]

            for item, answer in zip(sent, answers, strict=True):
                _check(subject, answer.result(60), item)
            statistics = model.statistics()[0]
            assert statistics["execution_count"] < statistics["inference_count"] == 4

    def test_several_instances_answer_at_the_same_time(self, served, subject, repository):
        text = subject.config + "\ninstance_group [{ count: 2 kind: KIND_CPU }]"
        with _another(served, repository, "several", text) as model:
            made = subject.inputs(4 if subject.batches else 1)
            rows = [_rows(made, i % 4, i % 4 + 1) if subject.batches else made for i in range(12)]
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(model.infer, rows))
            for sent, answer in zip(rows, answers, strict=True):
                _check(subject, answer, sent)
            assert len(_hosts(served, "several")) == 2

    def test_only_the_wanted_outputs_are_returned(self, served, subject):
        sent = subject.inputs(1)
        for name in subject.expected(sent):
            answer = served.infer("model", sent, outputs=[name])
            assert list(answer) == [name]
            _check(subject, answer, sent, only=name)

    def test_an_instance_in_a_process_of_its_own_answers_alike(self, served, subject, repository):
        with _another(served, repository, "apart", subject.config + "\n" + PROCESS) as model:
            sent = subject.inputs(2 if subject.batches else 1)
            _check(subject, model.infer(sent), sent)
            _check_refused(subject, model, _with_other_type(subject.inputs(1)))
            hosts = _hosts(served, "apart")
            assert hosts
            assert all(isinstance(host, ProcessHost) and host.pid for host in hosts)

    # Wrong requests

    def test_a_wrong_type_is_the_callers_mistake(self, served, subject):
        _check_refused(subject, served.model("model"), _with_other_type(subject.inputs(1)))

    def test_a_wrong_rank_is_the_callers_mistake(self, served, subject):
        if not subject.has_fixed_rank:
            pytest.skip("the config of this model allows any rank")
        sent = subject.inputs(1)
        name = next(iter(sent))
        _check_refused(subject, served.model("model"), sent | {name: sent[name][..., np.newaxis]})

    def test_a_shape_that_only_the_model_refuses_fails_in_a_few_words(self, served, subject):
        """Whose mistake it is, few runtimes can tell; none shows its insides, and all go on."""
        if subject.misfit is None:
            pytest.skip("the config of this model says all that the model asks of shapes")
        with pytest.raises(ServingError) as caught:
            served.infer("model", subject.misfit())
        _check_is_short(caught.value.message)
        sent = subject.inputs(1)
        _check(subject, served.infer("model", sent), sent)

    def test_a_missing_input_and_an_unknown_output_are_the_callers_mistakes(self, served, subject):
        sent = subject.inputs(1)
        _check_refused(subject, served.model("model"), {})
        _check_refused(subject, served.model("model"), sent, outputs=["no such output"])

    def test_a_batch_of_no_rows_is_refused_and_the_model_goes_on(self, served, subject):
        """GRPC and HTTP alike: the first dimension is at least 1."""
        _needs_batches(subject)
        nothing = _rows(subject.inputs(1), 0, 0)
        _check_refused(subject, served.model("model"), nothing)

    def test_an_empty_tensor_is_answered_or_refused_and_the_model_goes_on(self, served, subject):
        """Where the config allows a dimension of any size, it may be 0."""
        sent = subject.inputs(1)
        dims = {item["name"]: item["dims"] for item in served.model("model").config()["input"]}
        if not any(int(dim) == -1 for item in dims.values() for dim in item):
            pytest.skip("every dimension of this model has a fixed size")
        lead = 1 if subject.batches else 0
        empty = {}
        for name, array in sent.items():
            sizes = zip(array.shape[lead:], dims[name], strict=True)
            free = [0 if int(dim) == -1 else size for size, dim in sizes]
            empty[name] = np.empty((*array.shape[:lead], *free), array.dtype)
        answer = served.model("model").submit(empty)
        error = answer.exception(60)
        if error is None:
            assert answer.result()
        else:
            assert error.code in _CALLER, error.message
        _check(subject, served.infer("model", sent), sent)

    # Threads

    def test_an_unloaded_model_leaves_no_thread_of_an_instance(self, served, subject, repository):
        before = set(threading.enumerate())
        with _another(served, repository, "threads", subject.config) as model:
            model.infer(subject.inputs(1))
        wait_until_blocking(
            lambda: not any("threads" in item.name for item in set(threading.enumerate()) - before)
        )


class _another:  # noqa: N801 - reads as a function
    """The subject's files under another name and config, loaded for as long as it is used."""

    def __init__(self, server: ModelServer, root: Path, name: str, config: str) -> None:
        self._server, self._name = server, name
        _copy(root, name, config)

    def __enter__(self) -> Any:
        return self._server.load(self._name)

    def __exit__(self, *_: object) -> None:
        self._server.unload(self._name)


def _configure(root: Path, name: str, config: str) -> None:
    (root / name).mkdir(exist_ok=True)
    (root / name / "config.pbtxt").write_text(config)


def _copy(root: Path, name: str, config: str) -> None:
    shutil.rmtree(root / name, ignore_errors=True)
    _configure(root, name, config)
    shutil.copytree(root / "model" / "1", root / name / "1")


def _hosts(server: ModelServer, name: str) -> list[InstanceHost]:
    """What runs the instances of a loaded model."""
    return server.thread.invoke(lambda: list(server.thread.server.model(name, -1).hosts))


def _needs_batches(subject: Subject) -> None:
    if not subject.batches:
        pytest.skip("this model does not batch")


def _rows(arrays: Mapping[str, np.ndarray], start: int, end: int) -> Arrays:
    return {name: array[start:end] for name, array in arrays.items()}


def _types(side: list[dict[str, Any]]) -> dict[str, str]:
    return {item["name"]: item["data_type"] for item in side}


def _with_other_type(sent: Arrays) -> Arrays:
    name, array = next(iter(sent.items()))
    other = np.float64 if array.dtype != np.float64 else np.int8
    return sent | {name: np.zeros(array.shape, other)}


def _check(
    subject: Subject, answer: Mapping[str, np.ndarray], sent: Arrays, only: str = ""
) -> None:
    """Every output, or `only` this one, came back and is what the subject says."""
    wanted = subject.expected(sent)
    for name in [only] if only else wanted:
        array = answer[name]
        assert array.dtype == wanted[name].dtype, name
        assert array.shape == wanted[name].shape, name
        if array.dtype.kind in "OSUb":
            np.testing.assert_array_equal(array, wanted[name])
        else:
            np.testing.assert_allclose(
                array.astype(np.float64),
                wanted[name].astype(np.float64),
                rtol=subject.rtol,
                atol=subject.atol,
            )


def _check_refused(subject: Subject, model: Any, sent: Arrays, **options: Any) -> None:
    """A client's error in a few words; the next good request is answered."""
    with pytest.raises(ServingError) as caught:
        model.infer(sent, **options)
    assert caught.value.code in _CALLER, caught.value.message
    _check_is_short(caught.value.message)
    good = subject.inputs(1)
    _check(subject, model.infer(good), good)


def _check_is_short(message: str) -> None:
    """No traceback, and no place in the sources of the runtime."""
    assert len(message) <= _MAX_ERROR_CHARACTERS, message
    for trace in ("Traceback", ".cpp:", ".cc:", ".h:", "frame #"):
        assert trace not in message


def _refused(server: ModelServer, name: str) -> str:
    with pytest.raises(ServingError) as caught:
        server.load(name)
    _check_is_short(caught.value.message)
    return caught.value.message
