"""Engine builds: what is asked of the worker, what becomes of it, what is refused, who did it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.core.models import AuditEntry
from console.engines import operations, services, tasks
from console.engines.models import EngineBuild
from console.engines.services import Wish
from console.engines.shapes import ShapeError, inputs_of, parse_profile, parse_shape, prefilled
from console.repository import configs
from serving.errors import InvalidArgumentError, NotFoundError, ServingError, UnavailableError
from tests.console.fakes import FakeWorkerClient, make_device, make_worker
from tests.serving.backends import onnx_files
from tests.serving.backends.onnx_files import FLOAT, value
from tests.serving.loading import config_of
from workers.client import WorkerError
from workers.messages import BackendState


def test_a_build_is_sent_to_a_worker_with_a_gpu_and_prefilled_shapes(
    build: Any, fake_workers: FakeWorkerClient
) -> None:
    """The batch goes up to what the config says."""
    row = build()

    (call,) = fake_workers.calls
    order = call.arguments["order"]
    assert (call.worker_id, order.model, order.version, order.target) == (
        "gpu-1", "adder", 1, "adder_trt",
    )  # fmt: skip
    assert order.profiles == [{name: ([1, 4], [8, 4], [32, 4]) for name in ("A", "B")}]
    assert (row.state, row.sent_at is not None) == ("queued", True)


def test_progress_is_followed_to_the_end(build: Any, tell: Any, model: Any) -> None:
    row = build()
    tell(row, "running", phase="Optimizing", fraction=0.4)
    assert operations.follow() == 1
    row.refresh_from_db()
    assert (row.state, row.phase, row.percent) == ("running", "Optimizing", 40)

    tell(row, "succeeded", fraction=1.0, version=3, engine_bytes=99, builder="TensorRT 11")
    assert operations.follow() == 0
    row.refresh_from_db()
    assert (row.state, row.target_version, row.engine_bytes) == ("succeeded", 3, 99)
    assert row.finished_at is not None


def test_the_config_of_a_new_model_is_of_who_asked_for_the_engine(
    build: Any, tell: Any, repository: Any, operator: Any
) -> None:
    row = build()
    (repository / "adder_trt" / "1").mkdir(parents=True)
    (repository / "adder_trt" / "config.pbtxt").write_text('backend: "tensorrt"\n')
    tell(row, "succeeded", fraction=1.0, version=1)
    operations.follow()

    revision = configs.latest_revision("adder_trt")

    assert revision is not None
    assert (revision.actor, revision.reason) == (operator, f"Engine build {row.pk}")


def test_a_failure_keeps_the_workers_words(build: Any, tell: Any) -> None:
    row = build()
    tell(row, "failed", error="operator Foo is unknown")
    operations.follow()
    row.refresh_from_db()
    assert (row.state, row.error) == ("failed", "operator Foo is unknown")


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (None, "is not known any more"),
        ({"state": "lost"}, "was lost before the build had ended"),
        ({"state": "stopped"}, "stopped before the build had ended"),
        ({"started_at": time.time() + 86_400}, "was restarted before the build had ended"),
    ],
)
def test_a_build_whose_worker_is_gone_has_failed(
    build: Any, tell: Any, fake_workers: FakeWorkerClient, worker: Any, words: str
) -> None:
    row = build()
    tell(row, "running", fraction=0.1)
    fake_workers.infos = [] if worker is None else [make_worker("gpu-1", **worker)]
    operations.follow()
    row.refresh_from_db()
    assert row.state == "failed"
    assert words in row.error


def test_a_worker_that_never_takes_the_build_is_given_up(build: Any) -> None:
    row = build()
    EngineBuild.objects.update(sent_at=timezone.now() - timedelta(seconds=2000))
    operations.follow()
    row.refresh_from_db()
    assert "did not take the build within 900 s" in row.error


def test_a_worker_that_cannot_be_asked_is_told_at_once(
    build: Any, fake_workers: FakeWorkerClient, monkeypatch: Any
) -> None:
    def refuse(*ignored: Any) -> None:
        raise WorkerError("Redis cannot be reached")

    monkeypatch.setattr(fake_workers, "build_engine", refuse)
    row = build()
    assert (row.state, row.error) == ("failed", "Redis cannot be reached")


def test_a_build_whose_task_got_lost_is_sent_by_the_sweep(
    build: Any, fake_workers: FakeWorkerClient
) -> None:
    row = build()
    EngineBuild.objects.update(sent_at=None, created_at=timezone.now() - timedelta(minutes=1))
    fake_workers.calls.clear()
    fake_workers.infos = [make_worker("gpu-1", state="lost")]  # so that following ends at once

    tasks.sweep_builds()

    assert [call.operation_id for call in fake_workers.calls] == [row.build_id]


def test_cancelling_asks_the_worker(
    build: Any, operator: Any, fake_workers: FakeWorkerClient, tell: Any
) -> None:
    row = build()
    services.cancel(actor=operator, build=row)
    assert fake_workers.calls[-1].action == "cancel"

    tell(row, "cancelled")
    operations.follow()
    row.refresh_from_db()
    assert row.state == "cancelled"
    with pytest.raises(InvalidArgumentError, match="is over"):
        services.cancel(actor=operator, build=row)


def test_a_build_that_was_not_sent_ends_at_once(
    build: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    row = build()
    EngineBuild.objects.update(sent_at=None)
    fake_workers.calls.clear()
    services.cancel(actor=operator, build=row)
    row.refresh_from_db()
    assert (row.state, fake_workers.calls) == ("cancelled", [])
    assert not operations.dispatch(row.pk)


def test_a_retry_is_the_same_once_more(build: Any, operator: Any, tell: Any) -> None:
    row = build(precision="fp32", capabilities=("8.9",))
    with pytest.raises(InvalidArgumentError, match="still runs"):
        services.retry(actor=operator, build=row)
    tell(row, "failed", error="no")
    operations.follow()
    row.refresh_from_db()

    again = services.retry(actor=operator, build=row)

    assert again.pk != row.pk
    assert (again.precision, again.capabilities, again.profiles) == (
        row.precision, row.capabilities, row.profiles,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"version": 9}, NotFoundError, "no version 9 with an ONNX file"),
        ({"target": "a/b"}, InvalidArgumentError, "cannot be a model name"),
        ({"target": "adder"}, InvalidArgumentError, "itself"),
        ({"target": "other"}, InvalidArgumentError, "it is none of TensorRT"),
        ({"worker_id": "gpu-9"}, NotFoundError, "Known workers: cpu-1, gpu-1"),
        ({"precision": "fp64"}, InvalidArgumentError, "must be one of model"),
        ({"profiles": [{"A": [[2], [1], [3]]}]}, InvalidArgumentError, "must not fall"),
    ],
)
def test_what_cannot_be_is_refused_and_noted(
    build: Any, repository: Any, changes: Any, error: type[ServingError], words: str
) -> None:
    (repository / "other" / "1").mkdir(parents=True)
    (repository / "other" / "config.pbtxt").write_text('backend: "python"')
    with pytest.raises(error, match=words):
        build(**changes)
    assert not EngineBuild.objects.exists()
    assert AuditEntry.objects.filter(action="build engine refused").count() == 1


def test_a_fleet_without_connected_workers_builds_nothing(
    build: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1", state="lost")]
    with pytest.raises(UnavailableError, match="No worker is connected"):
        build()
    with pytest.raises(UnavailableError, match="'gpu-1' is not connected"):
        build(worker_id="gpu-1")


def test_a_model_without_an_onnx_file_is_refused(repository: Any, operator: Any) -> None:
    (repository / "script" / "1").mkdir(parents=True)
    with pytest.raises(InvalidArgumentError, match="no version with an ONNX file"):
        services.build_engine(actor=operator, wish=Wish(model="script"))


def test_every_deed_is_in_the_audit_log(build: Any, operator: Any, tell: Any) -> None:
    row = build()
    tell(row, "failed", error="no")
    operations.follow()
    rows = AuditEntry.objects.order_by("id").values_list("actor_name", "action", "target")
    assert list(rows) == [
        ("oscar", "build engine", "adder_trt"),
        ("oscar", "build engine failed", "adder_trt"),
    ]


def test_shapes_to_begin_with_come_from_file_and_config(tmp_path: Any) -> None:
    """The batch is any; what the config fixes is fixed; the rest is left open."""
    path = onnx_files.write(
        tmp_path,
        [
            value("image", FLOAT, ["n", 3, "h", "w"]),
            value("size", onnx_files.TensorProto.INT64, [2]),
            value("fixed", FLOAT, [2, 2]),
        ],
        [value("Y", FLOAT, None)],
        [],
    )
    config = config_of(
        'max_batch_size: 4 input { name: "image" data_type: TYPE_FP32 dims: [3, 224, -1] }'
    )
    image, size = inputs_of(path, config)
    assert (image.low, image.best, image.high) == ("1x3x224x?", "4x3x224x?", "4x3x224x?")
    assert (size.name, size.is_optional, size.low) == ("size", True, "")
    assert prefilled([image, size]) is None
    assert inputs_of(path, None)[0].high == "16x3x?x?"


@pytest.mark.parametrize("text", ["8x3x224", "8, 3, 224", "8 3 224", "8×3×224"])
def test_shapes_are_read_as_people_write_them(text: str) -> None:
    assert parse_shape(text) == [8, 3, 224]


@pytest.mark.parametrize(
    ("text", "words"), [("8x?", "in place of each ?"), ("8xa", "'a' is no"), ("-1", "'-1' is no")]
)
def test_what_is_no_shape_is_refused(text: str, words: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_shape(text)
    assert words in str(caught.value)


def test_a_profile_of_the_command_line_names_three_shapes() -> None:
    assert parse_profile("A=1x4,8x4,32x4; B=1,2,3") == {
        "A": [[1, 4], [8, 4], [32, 4]],
        "B": [[1], [2], [3]],
    }
    with pytest.raises(ShapeError, match="write input=smallest,best,largest"):
        parse_profile("A=1x4")


def test_a_worker_without_tensorrt_is_passed_over_and_refused_with_what_to_install(
    build: Any, fake_workers: FakeWorkerClient
) -> None:
    missing = BackendState("tensorrt", install="pip install 'conch[tensorrt-rtx]'")
    present = BackendState("tensorrt", package="tensorrt-rtx", version="1.4")
    bare = make_worker("gpu-1", devices=[make_device()], backends=[missing])
    fake_workers.infos = [bare, make_worker("gpu-2", backends=[present])]

    assert build(target="first").worker_id == "gpu-2"
    with pytest.raises(UnavailableError, match=r"'gpu-1' has no TensorRT.*conch\[tensorrt-rtx\]"):
        build(worker_id="gpu-1", target="second")
    fake_workers.infos = [bare]
    with pytest.raises(UnavailableError, match="no TensorRT"):
        build(target="third")
    assert EngineBuild.objects.count() == 1
