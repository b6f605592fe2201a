"""A whole Conch: what `manage.py up` starts answers, survives a killed worker, and ends clean."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.system.conch import RunningConch

pytestmark = pytest.mark.redis

DEMO_MODELS = {"file_type", "ocr", "speech_detector", "text_recognizer", "word_stats"}
QUESTION = {
    "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["so far so good"]}]
}


@pytest.fixture
def client(conch: RunningConch) -> Iterator[httpx.Client]:
    client = conch.logged_in()
    yield client
    client.close()


def ready_models(client: httpx.Client) -> set[str]:
    rows = client.get("/api/v1/models").json()
    return {row["name"] for row in rows if row["state"] == "ready"}


def test_the_demo_models_become_ready_by_themselves(
    conch: RunningConch, client: httpx.Client
) -> None:

    conch.wait_for(lambda: ready_models(client) >= DEMO_MODELS)


def test_the_gateway_answers_a_logged_in_browser(conch: RunningConch, client: httpx.Client) -> None:
    conch.wait_for(lambda: ready_models(client) >= DEMO_MODELS)

    answer = client.post(
        "/v2/models/word_stats/infer", json=QUESTION, headers={"Origin": conch.address}
    )

    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][1]["data"] == [4]


def test_the_gateway_asks_strangers_who_they_are(conch: RunningConch) -> None:
    answer = httpx.post(f"{conch.address}/v2/models/word_stats/infer", json=QUESTION)

    assert answer.status_code == 401
    assert list(answer.json()) == ["error"]


def test_a_killed_worker_comes_back_with_the_models_that_were_wanted(
    conch: RunningConch, client: httpx.Client
) -> None:
    conch.wait_for(lambda: ready_models(client) >= DEMO_MODELS)
    before = conch.pid_of("worker")

    os.kill(before, signal.SIGKILL)

    conch.wait_for(lambda: conch.pid_of("worker") != before)
    direct = f"http://127.0.0.1:{conch.http_port}/v2/models/word_stats/infer"
    conch.wait_for(lambda: answers(direct))
    assert httpx.post(direct, json=QUESTION).json()["outputs"][1]["data"] == [4]
    conch.wait_for(lambda: ready_models(client) >= DEMO_MODELS)


def answers(url: str) -> bool:
    try:
        return httpx.post(url, json=QUESTION).status_code == 200
    except httpx.TransportError:
        return False


def test_a_silent_worker_shows_as_lost_within_ten_seconds(
    conch: RunningConch, client: httpx.Client
) -> None:
    conch.wait_for(lambda: ready_models(client) >= DEMO_MODELS)
    pid = conch.pid_of("worker")

    os.kill(pid, signal.SIGSTOP)
    try:
        conch.wait_for(lambda: "lost" in worker_states(client), seconds=13)
        assert ready_models(client) == set()
    finally:
        os.kill(pid, signal.SIGCONT)

    conch.wait_for(lambda: ready_models(client) >= DEMO_MODELS)


def worker_states(client: httpx.Client) -> set[str]:
    return {row["state"] for row in client.get("/api/v1/workers").json()}


def test_ctrl_c_stops_every_process(tmp_path: Path) -> None:
    running = RunningConch(tmp_path, demo=None)
    running.wait_until_up()
    family = psutil.Process(running.pid).children(recursive=True)
    assert len(family) >= 4

    code = running.stop()

    assert code == 0, running.lines
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_killed_control_process_leaves_no_second_beat_behind(conch: RunningConch) -> None:
    before = conch.pid_of("control")
    conch.wait_for(lambda: psutil.Process(before).children())
    family = psutil.Process(before).children(recursive=True)

    os.kill(before, signal.SIGKILL)

    assert psutil.wait_procs(family, timeout=10)[1] == []
    conch.wait_for(lambda: conch.pid_of("control") != before)
