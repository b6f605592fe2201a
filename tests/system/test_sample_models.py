"""The sample models load from the console and answer (SMP-02)."""

from __future__ import annotations

import json
import shutil
from typing import Any

import httpx
import pytest

from tests.system.conch import ROOT, RunningConch

pytestmark = pytest.mark.redis

SAMPLES = ROOT / "examples" / "sample_models"


def post(client: httpx.Client, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    answer = client.post(path, json=body or {}, headers=csrf(client))
    assert answer.status_code < 300, answer.text
    return answer


def csrf(client: httpx.Client) -> dict[str, str]:
    token = next(value for name, value in client.cookies.items() if "csrf" in name)
    return {"X-CSRFToken": token, "Referer": str(client.base_url), "Origin": str(client.base_url)}


def one_row(name: str, kind: str, value: int) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": kind, "shape": [1, 1], "data": [value]}]}


def test_smp_02_each_sample_is_loaded_by_the_console_and_answers(conch: RunningConch) -> None:
    names = sorted(path.name for path in SAMPLES.iterdir())
    assert names == ["accumulate", "delay", "identity", "repeat"]
    repository = conch.data_directory / "model_repository"
    client = conch.logged_in()
    for name in names:
        shutil.copytree(SAMPLES / name, repository / name)
    try:
        for name in names:
            post(client, f"/api/v1/models/{name}/load")
        conch.wait_for(lambda: all(is_ready(client, name) for name in names))
        for name in ("identity", "delay"):
            answer = post(client, f"/v2/models/{name}/infer", one_row("IN", "FP32", 3)).json()
            assert answer["outputs"][0]["data"] == [3]
        body = one_row("INPUT", "INT32", 3) | {
            "parameters": {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
        }
        answer = post(client, "/v2/models/accumulate/infer", body).json()
        assert answer["outputs"][0]["data"] == [3]
        stream = httpx.post(
            f"http://127.0.0.1:{conch.http_port}/v2/models/repeat/generate_stream",
            json={"IN": [4, 5], "DELAY": [0, 0], "WAIT": [0]},
        )
        events = [json.loads(x[5:]) for x in stream.text.splitlines() if x.startswith("data:")]
        assert [event["OUT"] for event in events] == [4, 5]
    finally:
        for name in names:
            post(client, f"/api/v1/models/{name}/unload")
        conch.wait_for(lambda: not any(is_ready(client, name) for name in names))
        for name in names:
            shutil.rmtree(repository / name)
        client.close()


def is_ready(client: httpx.Client, name: str) -> bool:
    answer = client.get(f"/api/v1/models/{name}")
    return answer.status_code == 200 and answer.json()["state"] == "ready"
