"""`/v1` of the console: OpenAI's unmodified client with an API token as its key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from console.core.roles import Role
from console.gateway import openai as routes
from console.gateway.app import Gateway
from console.gateway.routes import Refusal, Target
from serving.options import FrontendOptions, ServerOptions
from serving.server_thread import ServerThread
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.gateway.test_gateway import client_of, gateway, infer_token, token_of
from tests.console.gateway.worker import WorkerPort

__all__ = ["gateway", "infer_token"]
pytestmark = pytest.mark.django_db(transaction=True)

ECHO = """
backend: "identity"
input { name: "text_input" data_type: TYPE_STRING dims: [1] }
output { name: "text_output" data_type: TYPE_STRING dims: [1] }
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A real server with a model that says what it is told."""
    root = tmp_path_factory.mktemp("models")
    (root / "echo" / "1").mkdir(parents=True)
    (root / "echo" / "config.pbtxt").write_text(ECHO)
    doors = FrontendOptions(http_port=0, allow_grpc=False, allow_metrics=False)
    thread = ServerThread(ServerOptions(model_repositories=(Path(root),)), doors)
    thread.start()
    yield thread
    thread.stop()


@pytest.fixture
async def client(
    gateway: Gateway,
    fake_workers: FakeWorkerClient,
    infer_token: dict[str, str],
    worker: ServerThread,
) -> AsyncIterator[openai.AsyncOpenAI]:
    fake_workers.infos = [
        make_worker("w0", models=[make_model("other")]),
        make_worker(
            "w1",
            http_url=f"http://127.0.0.1:{worker.ports.http}",
            models=[make_model("echo")],
        ),
    ]
    key = infer_token["authorization"].removeprefix("Bearer ")
    async with client_of(gateway) as http:
        yield openai.AsyncOpenAI(
            base_url="http://localhost/v1", api_key=key, http_client=http, max_retries=0
        )


async def test_a_completion_goes_to_the_worker_whose_model_the_body_names(
    client: openai.AsyncOpenAI,
) -> None:
    for _ in range(3):
        answer = await client.completions.create(model="echo", prompt="one two")
        assert answer.choices[0].text == "one two"


async def test_a_streamed_chat_passes(client: openai.AsyncOpenAI) -> None:
    said: Any = [{"role": "user", "content": "hello"}]
    stream = await client.chat.completions.create(model="echo", messages=said, stream=True)
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]

    assert "".join(parts) == "user: hello\nassistant:"


async def test_models_of_all_workers_are_listed_and_one_is_looked_up(
    client: openai.AsyncOpenAI,
) -> None:
    assert [model.id async for model in client.models.list()] == ["echo", "other"]
    assert (await client.models.retrieve("echo")).id == "echo"


async def test_errors_have_openais_form(client: openai.AsyncOpenAI, gateway: Gateway) -> None:
    with pytest.raises(openai.NotFoundError, match="no worker knows 'nope'") as unknown:
        await client.completions.create(model="nope", prompt="x")
    assert unknown.value.code == "model_not_found"

    with pytest.raises(openai.BadRequestError, match="prompt"):
        await client.completions.create(model="echo", prompt=[1, 2])

    client.api_key = "wrong"
    with pytest.raises(openai.AuthenticationError, match="API token is unknown"):
        await client.models.list()


async def test_who_may_only_read_may_not_infer(
    gateway: Gateway, fake_workers: FakeWorkerClient, make_user: Any
) -> None:
    from channels.db import database_sync_to_async

    user = await database_sync_to_async(make_user)("someone", "operator")
    headers = await database_sync_to_async(token_of)(user, "read")
    async with client_of(gateway) as http:
        assert (await http.get("/v1/models", headers=headers)).status_code == 200
        refused = await http.post("/v1/completions", json={"model": "m"}, headers=headers)

    assert refused.status_code == 403
    assert refused.json()["error"]["type"] == "permission_error"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 7}', b'{"prompt": "x"}'])
async def test_a_body_that_names_no_model_is_a_workers_to_refuse(
    gateway: Gateway, fake_workers: FakeWorkerClient, infer_token: dict[str, str], content: bytes
) -> None:
    async with WorkerPort() as port, client_of(gateway) as http:
        fake_workers.infos = [make_worker(http_url=port.url)]
        answer = await http.post("/v1/completions", content=content, headers=infer_token)

    assert answer.content == content  # this worker sends everything back


async def test_a_large_body_is_read_in_pieces_and_one_without_end_is_refused(
    gateway: Gateway,
    fake_workers: FakeWorkerClient,
    infer_token: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(count):
            yield b"x" * 30_000
        yield b'", "model": "m"}'

    monkeypatch.setattr(routes, "MOST_BODY", 100_000)
    async with WorkerPort() as port, client_of(gateway) as http:
        fake_workers.infos = [make_worker(http_url=port.url, models=[make_model("m")])]
        taken = await http.post("/v1/completions", content=pieces(3), headers=infer_token)
        refused = await http.post("/v1/completions", content=pieces(4), headers=infer_token)

    assert json.loads(taken.content)["model"] == "m"
    assert port.got[0].headers["content-length"] == str(len(taken.content))
    assert refused.status_code == 413
    assert "100000 bytes" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", b"/v1/completions", Target(Role.OPERATOR, is_named_in_body=True)),
        ("POST", b"/v1/chat/completions", Target(Role.OPERATOR, is_named_in_body=True)),
        ("POST", b"/v1/embeddings", Target(Role.OPERATOR, is_named_in_body=True)),
        ("GET", b"/v1/models", Target(Role.VIEWER, lists_models=True)),
        ("GET", b"/v1/models/a%20b", Target(Role.VIEWER, "a b")),
        ("GET", b"/v1/completions", 405),
        ("POST", b"/v1/models", 405),
        ("POST", b"/v1/models/m/load", 403),
        ("POST", b"/v1/models/m/unload", 403),
        ("GET", b"/v1", 404),
        ("GET", b"/v1/files", 404),
    ],
)
def test_routes(method: str, path: bytes, route: Target | int) -> None:
    found = routes.find_route(method, path)

    assert (found.status if isinstance(found, Refusal) else found) == route


def test_only_v1_is_openais() -> None:
    assert routes.covers(b"/v1")
    assert routes.covers(b"/v1/models")
    assert not routes.covers(b"/v10")
    assert not routes.covers(b"/v2/models")
