"""docker-compose.yml, as far as it can be checked without a container engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def environment_names(service: dict[str, Any]) -> set[str]:
    return set(service.get("environment", {}))


def test_it_names_the_processes_of_the_architecture() -> None:
    assert set(SERVICES) == {"redis", "db", "migrate", "web", "control", "worker"}


@pytest.mark.parametrize("name", ["web", "control", "worker", "migrate"])
def test_every_service_of_ours_builds_a_target_that_the_dockerfile_has(name: str) -> None:
    build = SERVICES[name]["build"]
    targets = re.findall(r"^FROM \S+ AS (\w+)", (ROOT / build["dockerfile"]).read_text(), re.M)

    assert build["target"] in targets


def test_every_dependency_exists_and_can_meet_its_condition() -> None:
    for name, service in SERVICES.items():
        for needed, rule in service.get("depends_on", {}).items():
            assert needed in SERVICES, (name, needed)
            if rule["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed], (name, needed)


def test_every_named_volume_is_declared() -> None:
    used = {
        mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])
    }

    assert used == set(COMPOSE["volumes"])


def test_the_worker_needs_no_database() -> None:
    worker = SERVICES["worker"]

    assert "DATABASE_URL" not in environment_names(worker)
    assert "db" not in worker["depends_on"]


def test_console_and_worker_share_the_model_repository() -> None:
    for name in ("web", "control", "worker"):
        assert SERVICES[name]["environment"]["CONCH_MODEL_REPOSITORY"] == "/models"


def test_every_secret_it_wants_is_in_the_example_environment() -> None:
    wanted = set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text()))
    example = (ROOT / "deploy/example.env").read_text()

    assert wanted <= set(re.findall(r"^(\w+)=", example, re.M))


def test_nothing_but_loopback_is_published() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
