"""The cast of every view test, and fake workers in place of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client

from console.core import workers
from console.core.roles import set_role
from tests.console.fakes import FakeWorkerClient
from tests.console.web_server import WebServer

PASSWORD = "correct horse battery"

MakeUser = Callable[..., Any]


@pytest.fixture(autouse=True)
def _plain_static_files(settings: Any, tmp_path: Any) -> None:
    """Tests need no collectstatic, and write no data of theirs beside the real ones."""
    plain = "django.contrib.staticfiles.storage.StaticFilesStorage"
    settings.STORAGES = settings.STORAGES | {"staticfiles": {"BACKEND": plain}}
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.STATIC_ROOT = tmp_path
    settings.CONCH_LIVE_RELAY = False


@pytest.fixture(autouse=True)
def fake_workers() -> Iterator[FakeWorkerClient]:
    client = FakeWorkerClient()
    workers.use_client(client)  # type: ignore[arg-type]
    yield client
    workers.use_client(None)


@pytest.fixture
def make_user(db: None) -> MakeUser:
    def make(name: str, role: str | None = None) -> Any:
        user = get_user_model().objects.create_user(name, password=PASSWORD)
        set_role(user, role)
        return user

    return make


@pytest.fixture
def viewer(make_user: MakeUser) -> Any:
    return make_user("vera", "viewer")


@pytest.fixture
def operator(make_user: MakeUser) -> Any:
    return make_user("oscar", "operator")


@pytest.fixture
def admin(make_user: MakeUser) -> Any:
    return make_user("ada", "admin")


@pytest.fixture
def stranger(make_user: MakeUser) -> Any:
    """Has a login but no role."""
    return make_user("sid")


@pytest.fixture
def login() -> Callable[[Any], Client]:
    """`login(viewer).get("/models/")`: a test client with that person's session."""

    def make(user: Any) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def web(settings: Any, transactional_db: None) -> Iterator[WebServer]:
    """The console on a port of its own; it ends, requests included, before the test does."""
    settings.CONCH_LIVE_RELAY = True
    settings.WHITENOISE_USE_FINDERS = True
    settings.WHITENOISE_AUTOREFRESH = True
    cache.clear()
    from channels.routing import ProtocolTypeRouter
    from django.core.asgi import get_asgi_application

    from console.routing import websocket_application

    routes = {"http": get_asgi_application(), "websocket": websocket_application}
    with WebServer(ProtocolTypeRouter(routes)) as server:
        yield server
