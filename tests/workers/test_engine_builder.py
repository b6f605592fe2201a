"""Engine builds of a worker: real ONNX files, the real builder of TensorRT-RTX, in its process."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.config.check import check_model
from serving.config.plan_header import read_header
from serving.errors import InvalidArgumentError
from tests.serving.backends import onnx_files
from tests.waiting import wait_until_blocking
from workers import engine_builder
from workers.engine_builder import EngineBuilds, check_target, onnx_file, publish
from workers.engine_messages import EngineOrder, EngineProgress, order_problem

ROWS = ([1, 4], [2, 4], [8, 4])
WIDE = ([8, 4], [16, 4], [32, 4])


def order_of(number: int = 0, **more) -> EngineOrder:
    fields = {
        "build_id": f"{number:032x}",
        "model": "plain",
        "version": 1,
        "target": "plain_trt",
        "library": "tensorrt_rtx",
        "profiles": [{"X": ROWS}],
        "capabilities": ["8.6"],
    }
    return EngineOrder(**fields | more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    onnx_files.write_identity(tmp_path / "models" / "plain")
    return tmp_path / "models"


class Told:
    """What a worker said of its builds."""

    def __init__(self) -> None:
        self.rows: list[EngineProgress] = []
        self.on: Callable[[EngineProgress], None] = lambda progress: None

    def __call__(self, progress: EngineProgress) -> None:
        self.rows.append(progress)
        self.on(progress)

    def last(self, number: int = 0) -> EngineProgress:
        """The end of a build."""
        wanted = order_of(number).build_id

        def ended() -> list[EngineProgress]:
            return [row for row in self.rows if row.build_id == wanted and not row.is_open]

        wait_until_blocking(ended, 30)
        return ended()[0]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def builds(root: Path, told: Told, monkeypatch) -> Iterator[EngineBuilds]:
    monkeypatch.setattr(engine_builder, "TELL_EVERY_S", 0.0)
    builds = EngineBuilds("w1", [root], told)
    yield builds
    builds.stop()


def test_an_engine_becomes_a_model_with_a_config_that_fits(builds, told, root):
    """TRT-01: two profiles; the config is completed from the network, and names them."""
    builds.start(order_of(profiles=[{"X": ROWS}, {"X": WIDE}]))
    done = told.last()

    assert (done.state, done.error) == ("succeeded", "")
    assert (done.version, done.fraction) == (1, 1.0)
    assert re.fullmatch(r"TensorRT-RTX 1\.\d+\.[0-9.]+", done.builder)
    path = root / "plain_trt" / "1" / "model.plan"
    assert path.stat().st_size == done.engine_bytes
    assert read_header(path).capabilities == ((8, 6),)
    check = check_model(root / "plain_trt", gpu_count=1)
    assert [str(item) for item in check.findings if item.severity.name == "ERROR"] == []
    assert check.config is not None
    assert (check.config.max_batch_size, check.config.backend) == (32, "tensorrt")
    assert list(check.config.instance_group[0].profile) == ["0", "1"]
    assert not list((root / ".conch" / "engines").iterdir())
    assert list(dict.fromkeys(row.state for row in told.rows)) == ["queued", "running", "succeeded"]
    fractions = [row.fraction for row in told.rows]
    assert fractions == sorted(fractions)
    assert any(0 < fraction < 1 for fraction in fractions)


def test_another_build_becomes_the_next_version_and_keeps_the_config(builds, told, root):
    builds.start(order_of())
    told.last()
    config = root / "plain_trt" / "config.pbtxt"
    config.write_text(config.read_text() + "# edited\n")

    builds.start(order_of(1, profiles=[{"X": WIDE}]))

    assert told.last(1).version == 2
    assert config.read_text().endswith("# edited\n")
    assert (root / "plain_trt" / "2" / "model.plan").is_file()


def test_a_build_that_fails_says_why_in_one_sentence(builds, told, root):
    builds.start(order_of(profiles=[]))

    failed = told.last()

    assert failed.state == "failed"
    assert failed.error == (
        "input X may have many shapes: give a profile with the smallest, the best and the largest"
    )
    assert not (root / "plain_trt").exists()


def test_a_running_build_is_cancelled(builds, told, root):
    """The process is ended, and what waits behind it is carried out."""
    reached = threading.Event()

    def cancel(progress: EngineProgress) -> None:
        if progress.fraction > 0 and not reached.is_set():
            reached.set()
            builds.cancel(progress.build_id)

    told.on = cancel
    builds.start(order_of(0))
    builds.start(order_of(1, target="second"))

    assert told.last(0).state == "cancelled"
    assert told.last(1).state == "succeeded"
    assert not (root / "plain_trt").exists()


def test_a_build_that_waits_is_never_begun(builds, told):
    held = threading.Event()
    told.on = lambda progress: progress.state == "running" and held.wait(10)
    builds.start(order_of(0))
    builds.start(order_of(1, target="second"))
    builds.cancel(order_of(1).build_id)
    held.set()

    assert told.last(1).state == "cancelled"
    assert told.last(0).state == "succeeded"
    builds.cancel(order_of(0).build_id)  # over already
    assert told.last(0).state == "succeeded"


def test_a_build_process_that_crashes_is_told(builds, told, monkeypatch):
    monkeypatch.setattr(
        engine_builder, "child_program", _Environment({"PYTHONHOME": "/nonexistent"})
    )
    builds.start(order_of())

    assert told.last().error.startswith("the build process exited with code 1: ")


class _Environment:
    """An environment in which no interpreter starts."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables

    def environment(self) -> dict[str, str]:
        return self._variables

    def describe_exit(self, code: int) -> str:
        return f"exited with code {code}"


def test_a_worker_that_stops_gives_its_builds_up(builds, told):
    told.on = lambda progress: progress.fraction > 0 and stopping.set()
    stopping = threading.Event()
    builds.start(order_of(0))
    builds.start(order_of(1))
    assert stopping.wait(30)

    builds.stop()

    assert {told.last(number).error for number in (0, 1)} == {
        "the worker stopped before the build was done"
    }


def test_models_that_engines_cannot_be_built_of_or_into(root):
    other = root / "other"
    (other / "1").mkdir(parents=True)
    (other / "config.pbtxt").write_text('backend: "python"')

    with pytest.raises(InvalidArgumentError, match="'other' has no file 1/model.onnx"):
        onnx_file(other, 1)
    with pytest.raises(InvalidArgumentError, match="it is none of TensorRT: give another name"):
        check_target(root, order_of(target="other"))
    with pytest.raises(InvalidArgumentError, match="a version of 'plain' itself"):
        check_target(root, order_of(target="plain"))
    (other / "config.pbtxt").write_text('default_model_filename: "../../x"')
    with pytest.raises(InvalidArgumentError, match="lies outside the model"):
        onnx_file(other, 1)


def test_the_file_that_the_config_names_is_taken(root):
    model = root / "plain"
    (model / "1" / "model.onnx").rename(model / "1" / "net.onnx")
    (model / "config.pbtxt").write_text('default_model_filename: "net.onnx"')
    assert onnx_file(model, 1) == model / "1" / "net.onnx"


def test_a_version_that_somebody_else_takes_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    folder, model = tmp_path / "built", tmp_path / "model"
    folder.mkdir()
    (folder / "model.plan").write_text("mine")
    (folder / "config.pbtxt").write_text("")
    numbers = iter([1, 2, 2, 2])

    def slow(directory: Path) -> int:
        number = next(numbers)
        if number == 1:
            (model / "1").mkdir(parents=True)
            (model / "1" / "model.plan").write_text("theirs")
        return number

    monkeypatch.setattr(engine_builder, "next_version", slow)

    assert publish(model, folder) == 2
    assert (model / "1" / "model.plan").read_text() == "theirs"
    assert (model / "2" / "model.plan").read_text() == "mine"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"build_id": "../../x"}, "cannot be the id of a build"),
        ({"precision": "fp64"}, "must be one of model, fp32"),
        ({"library": "cutlass"}, "must be one of tensorrt, tensorrt_rtx"),
        ({"capabilities": ["sm86"]}, "compute capability 'sm86' is none: write it as 8.9"),
        ({"workspace_bytes": -1}, "0 bytes or more"),
        ({"profiles": [{"X": ([2], [1], [3])}]}, "must not fall from smallest to largest"),
        ({"profiles": [{"X": ([2], [2], [3, 3])}]}, "have 1, 1 and 2 dimensions"),
        ({"profiles": [{"X": ([-1], [2], [3])}]}, "every dimension must be 0 to"),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_what_can(fields, words):
    assert words in order_problem(order_of(**fields))
    assert order_problem(order_of()) == ""


def test_a_worker_builds_when_the_console_asks(start_worker, client, root):
    """From the client through Celery, the worker and Redis, and back."""
    start_worker()
    wait_until_blocking(lambda: (info := client.worker("w1")) and info.state == "ready", 30)
    client.build_engine("w1", order_of())

    def progress() -> EngineProgress | None:
        return client.engine_progress(order_of().build_id)

    wait_until_blocking(lambda: (found := progress()) is not None and not found.is_open, 30)
    assert progress().state == "succeeded", progress().error
    client.cancel_engine("w1", order_of().build_id)
    assert client.engine_progress("0" * 31 + "f") is None
