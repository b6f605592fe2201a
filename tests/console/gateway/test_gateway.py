"""The gateway end to end: real connections to a worker's port, rights, failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from django.db import OperationalError

from console.accounts import services
from console.gateway import access, workers
from console.gateway.app import Gateway
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.gateway.worker import WorkerPort

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = Gateway()
    yield gateway
    await gateway.pool.close()


def token_of(user: Any, scope: str = "infer") -> dict[str, str]:
    _, text = services.create_token(actor=user, name="test", scope=scope, days=1)
    return {"authorization": f"Bearer {text}"}


def client_of(gateway: Gateway) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(gateway)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def serves(port: WorkerPort, worker_id: str = "w1", model: str = "m", **changes: Any) -> Any:
    return make_worker(worker_id, http_url=port.url, models=[make_model(model)], **changes)


@pytest.fixture
def infer_token(operator: Any) -> dict[str, str]:
    return token_of(operator)


async def test_body_and_answer_pass_unchanged(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    body = bytes(range(256)) * 4000
    async with WorkerPort() as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]
        headers = {**infer_token, "inference-header-content-length": "12", "cookie": "a=b"}

        answer = await client.post("/v2/models/m/infer?x=1", content=body, headers=headers)

    assert answer.status_code == 200
    assert answer.content == body
    assert answer.headers["x-conch-worker"] == "w1"
    assert "set-cookie" not in answer.headers
    assert port.got[0].path == "/v2/models/m/infer?x=1"
    assert port.got[0].headers["inference-header-content-length"] == "12"
    assert "authorization" not in port.got[0].headers
    assert "cookie" not in port.got[0].headers


async def test_body_of_unknown_length_is_streamed_in_chunks(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    async def pieces() -> Any:
        yield b"one "
        yield b"two"

    async with WorkerPort() as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]

        answer = await client.post("/v2/models/m/infer", content=pieces(), headers=infer_token)

    assert answer.content == b"one two"
    assert port.got[0].headers["transfer-encoding"] == "chunked"


async def test_chunked_answer_is_passed_on(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    async with WorkerPort("chunked") as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]

        answer = await client.post("/v2/models/m/generate_stream", headers=infer_token)

    assert answer.text == "one two"


async def test_connection_to_the_worker_is_kept(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    async with WorkerPort() as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]
        for _ in range(3):
            answer = await client.post("/v2/models/m/infer", content=b"x", headers=infer_token)
            assert answer.status_code == 200

        assert port.connections == 1


async def test_kept_connection_that_the_worker_closed_is_replaced(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    async with WorkerPort("once") as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]
        for _ in range(3):
            answer = await client.post("/v2/models/m/infer", content=b"x", headers=infer_token)
            assert answer.content == b"x"


async def test_workers_that_serve_the_model_take_turns(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    async with WorkerPort() as first, WorkerPort() as second, client_of(gateway) as client:
        fake_workers.infos = [serves(first, "w1"), serves(second, "w2")]

        seen = [
            (await client.post("/v2/models/m/infer", headers=infer_token)).headers["x-conch-worker"]
            for _ in range(4)
        ]

    assert sorted(seen) == ["w1", "w1", "w2", "w2"]


async def test_the_requests_of_a_sequence_stay_with_the_worker_that_they_name(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    named = {**infer_token, "X-Conch-Worker": "w2"}
    async with WorkerPort() as first, WorkerPort() as second, client_of(gateway) as client:
        fake_workers.infos = [serves(first, "w1"), serves(second, "w2")]
        answers = [await client.post("/v2/models/m/infer", headers=named) for _ in range(4)]
        fake_workers.infos = [serves(first, "w1")]
        gateway.workers.forget()
        while (lost := await client.post("/v2/models/m/infer", headers=named)).status_code == 200:
            pass  # the table is refreshed in the background

    assert {answer.headers["x-conch-worker"] for answer in answers} == {"w2"}
    assert lost.status_code == 503
    assert "'w2'" in lost.json()["error"]


async def test_worker_that_cannot_be_reached_is_passed_over(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    async with WorkerPort() as gone:
        pass
    async with WorkerPort() as port, client_of(gateway) as client:
        fake_workers.infos = [serves(gone, "gone"), serves(port, "here")]

        answers = [await client.post("/v2/models/m/infer", headers=infer_token) for _ in range(3)]

    assert {answer.headers.get("x-conch-worker") for answer in answers} == {"here"}


@pytest.mark.parametrize("behaviour", ["hang_up", "garbage"])
async def test_worker_that_breaks_gives_503_with_its_name(
    gateway: Gateway,
    fake_workers: FakeWorkerClient,
    infer_token: dict[str, str],
    behaviour: str,
) -> None:
    async with WorkerPort(behaviour) as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port, "w1")]

        answer = await client.post("/v2/models/m/infer", headers=infer_token)

    assert answer.status_code == 503
    assert "Worker 'w1'" in answer.json()["error"]


async def test_slow_worker_gives_503_after_the_timeout(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str], settings: Any
) -> None:
    settings.CONCH_GATEWAY_TIMEOUT_SECONDS = 0.05
    async with WorkerPort("hang") as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]

        answer = await client.post("/v2/models/m/infer", headers=infer_token)

    assert answer.status_code == 503
    assert "did not answer within" in answer.json()["error"]


async def test_client_that_hangs_up_ends_the_request_of_the_worker(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    sent: list[Any] = []
    async with WorkerPort("hang") as port:
        fake_workers.infos = [serves(port)]
        messages = iter([{"type": "http.request", "body": b"x", "more_body": False}])

        async def receive() -> Any:
            if message := next(messages, None):
                return message
            await port.received.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", infer_token["authorization"].encode())]
        path = "/v2/models/m/infer"
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await asyncio.wait_for(gateway(scope, receive, send), 5)
        await asyncio.wait_for(port.abandoned.wait(), 5)

    assert sent == []


@pytest.mark.parametrize(
    ("infos", "path", "status", "text"),
    [
        ([], "/v2/models/m/infer", 503, "No worker is connected"),
        ([make_worker(state="lost", models=[make_model("m")])], "/v2/models/m/infer", 503, "No"),
        ([make_worker()], "/v2/models/other/infer", 404, "no worker knows 'other'"),
        (
            [make_worker(models=[make_model("m", state="UNAVAILABLE", reason="no such file")])],
            "/v2/models/m/infer",
            503,
            "no such file",
        ),
        (
            [make_worker(models=[make_model("m")])],
            "/v2/models/m/versions/9/infer",
            503,
            "version 9",
        ),
    ],
)
async def test_request_nobody_can_take_says_why(
    gateway: Gateway,
    fake_workers: FakeWorkerClient,
    infer_token: dict[str, str],
    infos: list[Any],
    path: str,
    status: int,
    text: str,
) -> None:
    fake_workers.infos = infos
    async with client_of(gateway) as client:
        answer = await client.post(path, headers=infer_token)

    assert answer.status_code == status
    assert text in answer.json()["error"]


async def test_unreadable_registry_gives_503(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str]
) -> None:
    fake_workers.error = ConnectionError("refused")
    async with client_of(gateway) as client:
        answer = await client.post("/v2/models/m/infer", headers=infer_token)

    assert answer.status_code == 503
    assert "registry" in answer.json()["error"]


async def test_inference_goes_on_while_redis_is_away_and_comes_back_empty(
    gateway: Gateway,
    fake_workers: FakeWorkerClient,
    infer_token: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every request asks the registry and waits for the answer.
    monkeypatch.setattr(workers, "FRESH_S", -1.0)
    monkeypatch.setattr(workers, "USABLE_S", -1.0)
    async with WorkerPort() as port, client_of(gateway) as client:

        async def infer() -> int:
            return (await client.post("/v2/models/m/infer", headers=infer_token)).status_code

        fake_workers.infos = [serves(port)]
        assert await infer() == 200

        fake_workers.error = ConnectionError("refused")
        assert await infer() == 200

        fake_workers.error, fake_workers.infos = None, []
        assert await infer() == 200

        monkeypatch.setattr(workers, "SIGN_IN_S", -1.0)
        assert await infer() == 503


async def test_health_needs_no_login_and_ready_needs_a_worker(
    gateway: Gateway, fake_workers: FakeWorkerClient
) -> None:
    async with client_of(gateway) as client:
        assert (await client.get("/v2/health/live")).status_code == 200
        assert (await client.get("/v2/health/ready")).status_code == 503
        fake_workers.infos = [make_worker()]
        gateway.workers.forget()
        assert (await client.get("/v2/health/ready")).status_code == 200


@pytest.mark.parametrize(
    ("role", "scope", "read", "infer"),
    [
        (None, "infer", 403, 403),
        ("viewer", "read", 200, 403),
        ("viewer", "infer", 200, 403),
        ("operator", "read", 200, 403),
        ("operator", "infer", 200, 200),
        ("operator", "deploy", 200, 200),
        ("admin", "infer", 200, 200),
    ],
)
async def test_role_and_scope_decide(
    gateway: Gateway,
    fake_workers: FakeWorkerClient,
    make_user: Any,
    role: str | None,
    scope: str,
    read: int,
    infer: int,
) -> None:
    user = await database_sync_to_async(make_user)("someone", role)
    headers = await database_sync_to_async(token_of)(user, scope)
    async with WorkerPort() as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]

        assert (await client.get("/v2/models/m", headers=headers)).status_code == read
        assert (await client.post("/v2/models/m/infer", headers=headers)).status_code == infer


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer"])
async def test_without_a_valid_token_nothing_passes(gateway: Gateway, header: str | None) -> None:
    headers = {"authorization": header} if header else {}
    async with client_of(gateway) as client:
        answer = await client.get("/v2/models/m", headers=headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "oken" in answer.json()["error"]


async def test_a_database_that_is_away_is_a_503(
    gateway: Gateway, infer_token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(access, "verify_token", refuse)
    async with client_of(gateway) as client:
        answer = await client.get("/v2", headers=infer_token)

    assert answer.status_code == 503
    assert "database" in answer.json()["error"]


async def test_token_of_a_deactivated_person_is_refused(gateway: Gateway, operator: Any) -> None:
    headers = await database_sync_to_async(token_of)(operator)
    operator.is_active = False
    await database_sync_to_async(operator.save)()
    async with client_of(gateway) as client:
        assert (await client.get("/v2", headers=headers)).status_code == 401


async def test_session_infers_from_our_own_pages_only(
    gateway: Gateway, fake_workers: FakeWorkerClient, operator: Any, login: Any, settings: Any
) -> None:
    browser = await database_sync_to_async(login)(operator)
    cookie = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
    async with WorkerPort() as port, client_of(gateway) as client:
        fake_workers.infos = [serves(port)]

        async def infer(**headers: str) -> int:
            sent = {"cookie": cookie, **headers}
            return (await client.post("/v2/models/m/infer", headers=sent)).status_code

        assert await infer(origin="http://localhost") == 200
        assert await infer(origin="http://evil.example") == 403
        assert await infer() == 403
        assert await infer(origin="http://evil.example", host="evil.example") == 400


async def test_ended_session_is_refused(gateway: Gateway, settings: Any) -> None:
    headers = {"cookie": f"{settings.SESSION_COOKIE_NAME}=abcdefghijklmnopqrstuvwxyz"}
    async with client_of(gateway) as client:
        assert (await client.get("/v2", headers=headers)).status_code == 401
