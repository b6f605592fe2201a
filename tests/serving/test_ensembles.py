"""Ensembles in a whole server: loading, what is shown of them, and requests while parts change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import (
    ModelLoadError,
    NotFoundError,
    ServingError,
)
from serving.options import ControlMode, ServerOptions
from serving.request import InputTensor
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_ensemble, write_identity
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until

DECOUPLED = "model_transaction_policy { decoupled: true }\n"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ModelServer]:
    made = ModelServer(
        ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT, exit_timeout_secs=10)
    )
    await made.start()
    yield made
    await made.stop()


def index(server: ModelServer) -> list[str]:
    return rows(server.repository_index())


async def reason_of(server: ModelServer, name: str) -> str:
    await server.settled()
    return "; ".join(row.reason for row in server.repository_index() if row.name == name)


# Loading


async def test_load_of_an_ensemble_loads_its_parts_and_it_answers(server, tmp_path):
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "b")
    write_ensemble(tmp_path, "e", "a", "b")

    await server.load_model("e")

    assert index(server) == ["a:1 READY", "b:1 READY", "e:1 READY"]
    (row,) = [row for row in server.repository_index() if row.name == "e"]
    assert (row.backend, row.instances) == ("ensemble", 0)
    assert server.model_metadata("e")["platform"] == "ensemble"
    response = await server.infer_async(identity_request("e", value=7))
    assert response.outputs[0].array.tolist() == [[7.0] * 4]
    assert server.is_model_ready("e")


async def test_statistics_of_an_ensemble_sum_up_its_parts(server, tmp_path):
    write_identity(tmp_path, "a", delay_ms=5)
    write_ensemble(tmp_path, "e", "a", "a")
    await server.load_model("e")
    for _ in range(2):
        await server.infer_async(identity_request("e"))

    (row,) = server.model_statistics("e")
    (part,) = server.model_statistics("a")

    assert (row["inference_count"], row["execution_count"]) == (2, 2)
    assert (part["inference_count"], part["execution_count"]) == (4, 4)
    for stage in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert row["inference_stats"][stage]["count"] == 2
        assert row["inference_stats"][stage]["ns"] == part["inference_stats"][stage]["ns"]
    assert row["batch_stats"][0]["compute_infer"]["ns"] >= 20_000_000


async def test_sch_085_failure_counts_on_the_ensemble_and_on_the_part(server, tmp_path):
    config = write_identity(tmp_path, "a") / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 0"))
    write_ensemble(tmp_path, "e", "a")
    await server.load_model("e")
    request = identity_request("e")
    rows_of_two = np.zeros((2, 4), np.float32)
    request.inputs["INPUT0"] = InputTensor("INPUT0", BY_NAME["FP32"], (2, 4), rows_of_two)

    with pytest.raises(
        ServingError, match="in ensemble 'e', step 0 of model 'a': unexpected shape"
    ):
        await server.infer_async(request)

    failures = server.model("e").stats.snapshot().failures
    assert {reason.name: count for reason, count in failures.items() if count} == {"OTHER": 1}
    assert server.model("a").stats.snapshot().invalid_count == 1


async def test_sch_083_requests_of_an_ensemble_are_batched_inside_its_parts(server, tmp_path):
    write_identity(
        tmp_path,
        "a",
        extra="dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 5000000 }",
    )
    write_ensemble(tmp_path, "e", "a")
    await server.load_model("e")

    await asyncio.gather(*(server.infer_async(identity_request("e")) for _ in range(4)))

    (row,) = server.model_statistics("a")
    assert row["execution_count"] == 1


async def test_ensemble_that_does_not_fit_to_its_part_is_refused_with_its_line(server, tmp_path):
    write_identity(tmp_path, "a")
    model = write_ensemble(tmp_path, "e", "a")
    config = model / "config.pbtxt"
    config.write_text(config.read_text().replace('key: "OUTPUT0"', 'key: "NOPE"'))

    with pytest.raises(
        ModelLoadError, match=r"config.pbtxt:6:[0-9]+.*from non-existing output 'NOPE'"
    ):
        await server.load_model("e")

    assert "NOPE" in await reason_of(server, "e")
    with pytest.raises(NotFoundError, match="NOPE"):
        server.model("e")
    config.write_text(config.read_text().replace('key: "NOPE"', 'key: "OUTPUT0"'))
    await server.load_model("e")
    assert server.is_model_ready("e")


async def test_ensemble_over_a_decoupled_part_is_decoupled_itself(server, tmp_path):
    write_identity(tmp_path, "a", extra=DECOUPLED)
    write_ensemble(tmp_path, "inner", "a")
    write_ensemble(tmp_path, "outer", "inner")
    await server.load_model("outer")
    for name in ("inner", "outer"):
        assert server.model_config(name).model_transaction_policy.decoupled
    response = await server.infer_async(identity_request("outer"))
    assert response.outputs[0].array.shape == (1, 4)


async def test_ensembles_are_decoupled_no_longer_when_their_part_is_not(server, tmp_path):
    write_identity(tmp_path, "a", extra=DECOUPLED)
    write_ensemble(tmp_path, "inner", "a")
    write_ensemble(tmp_path, "outer", "inner")
    await server.load_model("outer")

    write_identity(tmp_path, "a")
    await server.load_model("a")

    for name in ("inner", "outer"):
        assert not server.model_config(name).model_transaction_policy.decoupled
        assert not server.model(name).spec.is_decoupled


async def test_part_that_is_replaced_by_one_that_does_not_fit_takes_the_ensemble_out(
    server, tmp_path
):
    write_identity(tmp_path, "a")
    write_ensemble(tmp_path, "e", "a")
    await server.load_model("e")
    config = tmp_path / "a" / "config.pbtxt"
    good = config.read_text()

    config.write_text(good.replace("[ 4 ]", "[ 5 ]"))
    await server.load_model("a")

    assert "inconsistent shape" in await reason_of(server, "e")
    assert not server.is_ready()
    config.write_text(good)
    await server.load_model("a")
    assert server.is_model_ready("e")
    assert server.is_ready()


async def test_version_that_a_step_names_must_serve_and_go_on_serving(server, tmp_path):
    write_identity(tmp_path, "a", versions=(1, 2), extra="version_policy { all { } }\n")
    write_ensemble(tmp_path, "e", "a:1")
    write_ensemble(tmp_path, "nine", "a:9")
    with pytest.raises(ModelLoadError, match=r"required version 9 is not loaded \(served: 1, 2\)"):
        await server.load_model("nine")
    await server.load_model("e")
    assert (await server.infer_async(identity_request("e"))).error is None
    assert server.model("a", 1).stats.snapshot().success.count == 1

    await server.unload_model("a", version=1)

    assert "required version 1 is not loaded (served: 2)" in await reason_of(server, "e")
    await server.load_model("a")
    assert server.is_model_ready("e")


async def test_sch_092_unload_of_a_part_tells_why_its_ensemble_is_away(server, tmp_path):
    write_identity(tmp_path, "a")
    write_ensemble(tmp_path, "e", "a")
    await server.load_model("e")
    await server.unload_model("a")

    assert await reason_of(server, "e") == "unloaded with its part 'a'"
    with pytest.raises(NotFoundError, match=r"'e' has no available versions \(unloaded with its"):
        server.model("e")
    assert server.is_ready()
    await server.load_model("a")
    assert index(server) == ["a:1 READY", "e:1 READY"]


async def test_ensembles_are_loaded_at_start_behind_their_parts(tmp_path):
    write_ensemble(tmp_path, "1_first", "z_last")
    write_identity(tmp_path, "z_last")
    server = ModelServer(ServerOptions((tmp_path,), model_control_mode=ControlMode.NONE))
    await server.start()
    assert index(server) == ["1_first:1 READY", "z_last:1 READY"]
    await server.stop()


async def test_poll_loads_an_ensemble_when_its_missing_part_appears(tmp_path):
    write_ensemble(tmp_path, "e", "a")
    server = ModelServer(
        ServerOptions(
            (tmp_path,),
            model_control_mode=ControlMode.POLL,
            repository_poll_secs=0.05,
            exit_on_error=False,
        )
    )
    await server.start()
    assert "it needs model 'a', which does not serve" in await reason_of(server, "e")

    write_identity(tmp_path, "a")

    await wait_until(lambda: index(server) == ["a:1 READY", "e:1 READY"])
    await server.stop()


# Namespaces


async def test_part_is_taken_from_the_own_repository_first_and_else_from_another(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        root.mkdir()
        write_ensemble(root, root.name, "a", "far")
        write_identity(root, "a")
    write_identity(two, "far")
    options = ServerOptions(
        (one, two), model_control_mode=ControlMode.EXPLICIT, model_namespacing=True
    )
    server = ModelServer(options)
    await server.start()

    await server.load_model("one")
    await server.load_model("two")

    config = server.model_config("one")
    assert [step.model_namespace for step in config.ensemble_scheduling.step] == [
        str(one),
        str(two),
    ]
    response = await server.infer_async(identity_request("one"))
    assert response.error is None
    counts = {
        model.namespace: model.stats.snapshot().success.count
        for model in server.metrics_models()
        if model.name == "a"
    }
    assert counts == {str(one): 1, str(two): 0}

    await server.unload_model("far")
    assert await reason_of(server, "one") == "unloaded with its part 'far'"
    await server.load_model("far")
    assert server.is_model_ready("one")
    await server.stop()


async def test_ensemble_asks_the_part_that_has_a_say_in_whether_it_is_ready(server, tmp_path):
    part = write_identity(tmp_path, "a")
    config = (part / "config.pbtxt").read_text().replace('"identity"', '"python"')
    (part / "config.pbtxt").write_text(config)
    (part / "1" / "model.py").write_text(
        "import pathlib\n"
        "class TritonPythonModel:\n"
        "    def is_ready(self):\n"
        f"        return pathlib.Path({str(tmp_path)!r}, 'go').exists()\n"
        "    def execute(self, requests):\n"
        "        return []\n"
    )
    write_ensemble(tmp_path, "inner", "a")
    write_ensemble(tmp_path, "outer", "inner")
    await server.load_model("outer")

    check = server.ready_check("outer")
    assert check is not None
    assert not await check
    (tmp_path / "go").touch()
    assert await server.ready_check("outer")
