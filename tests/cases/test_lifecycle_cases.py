"""What goes wrong with names, versions, load and unload in real reports, as HTTP clients see it."""

from __future__ import annotations

import concurrent.futures
import textwrap
from pathlib import Path

import pytest

from serving.options import ControlMode
from tests.cases.lifecycle_server import BAD_START, PID_MODEL, Client, write_python
from tests.serving.model_files import IDENTITY, write_ensemble, write_identity
from tests.waiting import wait_until_blocking

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


# Ensembles


@pytest.fixture
def over_two(client: Client) -> Client:
    """The ensemble "e" over "a" and "b"."""
    for name in ("a", "b"):
        write_identity(client.root, name)
    write_ensemble(client.root, "e", "a", "b")
    return client


def is_ready(client: Client, name: str) -> bool:
    return client.get(f"/models/{name}/ready").status_code == 200


def test_c20_load_of_an_ensemble_makes_its_parts_ready_and_they_stay_after_its_unload(over_two):
    assert over_two.load("e").status_code == 200
    assert [is_ready(over_two, name) for name in "eab"] == [True, True, True]
    assert over_two.infer("e").status_code == 200

    assert over_two.unload("e").status_code == 200

    assert [is_ready(over_two, name) for name in "eab"] == [False, True, True]


def test_c20_unload_dependents_takes_the_parts_along(over_two):
    over_two.load("e")
    over_two.load("b")  # by name: it stays
    body = {"parameters": {"unload_dependents": True}}

    assert over_two.post("/repository/models/e/unload", body).status_code == 200

    assert [is_ready(over_two, name) for name in "eab"] == [False, False, True]


def test_c20_unload_of_a_part_makes_the_ensemble_unavailable_and_a_load_brings_it_back(over_two):
    over_two.load("e")
    over_two.unload("a")

    assert [is_ready(over_two, name) for name in "eab"] == [False, False, True]
    told = over_two.infer("e")
    assert told.status_code == 404
    assert "unloaded with its part 'a'" in told.json()["error"]
    wait_until_blocking(
        lambda: over_two.rows("e") == [("1", "UNAVAILABLE", "unloaded with its part 'a'")]
    )
    assert over_two.get("/health/ready").status_code == 200
    assert over_two.load("a").status_code == 200
    assert over_two.infer("e").status_code == 200
