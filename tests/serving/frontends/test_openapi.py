"""docs/reference/openapi-v2.yaml is true: its routes are those served, and so are the answers.

SCHEMATHESIS_EXAMPLES makes the run longer: so many requests for each operation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from serving.client_memory import ClientMemory
from serving.frontends.http_routes import HttpRoutes
from serving.options import FrontendOptions
from serving.tracing.tracer import Tracer
from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess

DESCRIPTION = Path(__file__).parents[3] / "docs" / "reference" / "openapi-v2.yaml"
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "5"))
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
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
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    checks = [CHECKS.get_one(name) for name in CHECKED]
    failures, seen, succeeded = [], set(), set()

    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), is_there=st.sampled_from([True, True, False]))
        def check(case: Any, is_there: bool) -> None:
            if is_there:
                for name in case.path_parameters or {}:
                    case.path_parameters[name] = PLACES[name]
            if "/repository/" in case.path and "model" in (case.path_parameters or {}):
                case.path_parameters["model"] = CHURN
            answer = case.call_and_validate(checks=checks)
            if answer.status_code == 200:
                succeeded.add(operation.label)  # noqa: B023 - called within the loop

        try:
            check()
        except (Exception, BaseExceptionGroup) as error:
            failures.append(f"{operation.label}: {error}")
        seen.add(operation.label)

    assert not failures, "\n".join(failures)
    assert len(seen) == sum(
        len(set(item) - {"parameters"}) for item in description["paths"].values()
    )
    assert len(succeeded) > 25, sorted(seen - succeeded)
    assert not any("Traceback" in line for line in server.log)
