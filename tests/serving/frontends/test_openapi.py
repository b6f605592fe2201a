"""docs/reference/openapi-v2.yaml is true: its routes are those served, and so are the answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
import yaml

from serving.client_memory import ClientMemory
from serving.frontends.http_routes import HttpRoutes
from serving.options import FrontendOptions
from serving.tracing.tracer import Tracer
from tests.described import Operations
from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess

DESCRIPTION = Path(__file__).parents[3] / "docs" / "reference" / "openapi-v2.yaml"
PLACES = {"model": "identity", "version": 1, "region": "r"}
CHURN = "half"
"""Loaded and unloaded."""


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text())
    return loaded


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One of its own: models are unloaded, and what is logged is changed."""
    repository = write_repository(tmp_path_factory.mktemp("repository"))
    options = ("--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true")
    with ServerProcess((f"--model-repository={repository}", *options)) as running:
        yield running


def test_the_routes_described_are_those_served(description: dict[str, Any]) -> None:
    nothing: Any = SimpleNamespace(add_state_listener=lambda callback: None)
    routes = HttpRoutes(nothing, FrontendOptions(), ClientMemory(), Tracer())
    described = {path: set(item) - {"parameters"} for path, item in description["paths"].items()}

    for path, methods in described.items():
        asked = path.format(model="m", version=1, region="r")
        assert {name.decode().lower() for name in routes.methods_of(asked)} == methods, path
    fixed = set(routes._fixed)
    of_models = {f"/v2/models/{{model}}{rest}" for rest in routes._of_model}
    of_versions = {path.replace("}", "}/versions/{version}") for path in of_models}
    known = (
        fixed | of_models | of_versions - {"/v2/models/{model}/versions/{version}/trace/setting"}
    )
    others = set(described) - known
    assert known <= set(described)
    assert all("sharedmemory/" in path or "/repository/" in path for path in others)
    assert len(others) == 3 + 5 + 5


def test_every_answer_is_as_described(description: dict[str, Any], server: ServerProcess) -> None:
    schema = schemathesis.openapi.from_dict(description)
    schema.config.update(base_url=f"http://{server.http}")

    asked = Operations(schema, places=lambda label: PLACES, adjust=_spare_the_others).ask()

    assert not asked.failures, "\n".join(asked.failures)
    assert len(asked.seen) == sum(
        len(set(item) - {"parameters"}) for item in description["paths"].values()
    )
    assert len(asked.succeeded) > 25, sorted(asked.seen - asked.succeeded)
    assert not any("Traceback" in line for line in server.log)


def _spare_the_others(case: Any) -> None:
    if "/repository/" in case.path and "model" in (case.path_parameters or {}):
        case.path_parameters["model"] = CHURN
