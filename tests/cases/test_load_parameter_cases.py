"""What goes wrong with the parameters of a load in real reports, as HTTP clients see it."""

from __future__ import annotations

import base64
import json

import pytest

from tests.cases.lifecycle_server import OVERRIDE
from tests.serving.model_files import write_identity
from tests.waiting import wait_until_blocking


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
