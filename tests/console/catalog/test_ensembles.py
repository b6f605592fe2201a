"""Ensembles on the models pages: steps with the states of their parts, users, unload dialogs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.catalog.ensembles import family_of
from console.deployments.choices import WantedState
from console.deployments.models import DesiredModel
from tests.console.catalog.ensemble_files import PIPELINE, add_ensemble, add_pipeline
from tests.console.fakes import FakeWorkerClient, make_model, make_model_sample, make_sample
from tests.console.fakes import make_worker as worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def pipeline(repository: Path, fake_workers: FakeWorkerClient) -> Path:
    """`pipeline` and `first` are ready, `second` is not served."""
    add_pipeline(repository)
    models = [make_model("pipeline", backend="ensemble", instances=0), make_model("first", "2")]
    fake_workers.infos = [worker("gpu-1", models=models)]
    fake_workers.sample_list = [make_sample("gpu-1", None, [make_model_sample("first", "2")])]
    return repository


def read(client: Any, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_the_page_of_an_ensemble_lists_its_steps_and_how_they_fare(
    pipeline: Path, login: Any, viewer: Any
) -> None:
    text = read(login(viewer), "/models/pipeline/")

    assert "2 steps answer one request" in text
    assert '<a href="/models/first/">first</a>' in text
    assert "latest version · p50 2" in text
    assert '<span>Not served</span></span> <span class="muted">version 2</span>' in text
    assert '<code>half_done</code> <span class="muted">FP32 [-1, 2]</span>' in text
    assert '<text class="step-label"' in text


def test_a_part_that_nobody_has_is_named_as_missing(
    repository: Path, login: Any, viewer: Any
) -> None:
    add_ensemble(repository, "pipeline", PIPELINE)

    text = read(login(viewer), "/models/pipeline/")

    assert text.count("No such model") == 4
    assert 'href="/models/first/"' not in text


def test_steps_stay_true_by_the_live_parts(pipeline: Path, login: Any, viewer: Any) -> None:
    text = read(login(viewer), "/models/pipeline/header/?tab=model")

    assert 'data-part="steps"' in text
    assert 'data-part="steps"' not in read(login(viewer), "/models/first/header/?tab=model")


def test_how_its_users_fare_stays_true_by_the_live_parts(
    pipeline: Path, login: Any, viewer: Any, fake_workers: FakeWorkerClient
) -> None:
    fallen = make_model("pipeline", state="UNAVAILABLE", reason="unloaded with its part 'second'")
    fake_workers.infos = [worker("gpu-1", models=[fallen])]

    text = read(login(viewer), "/models/second/header/?tab=model")

    users = text[text.index('data-part="users"') :]
    assert "Unavailable" in users[: users.index("</dd>")]


def test_a_part_says_who_uses_it_and_who_falls_with_it(
    pipeline: Path, login: Any, operator: Any
) -> None:
    text = read(login(operator), "/models/first/")

    users = text[text.index("<dt>Used by</dt>") :]
    assert users.index('<a href="/models/pipeline/">pipeline</a>') < users.index("Ready")
    assert "pipeline cannot answer without it and becomes unavailable, too." in text
    assert "unload_dependents" not in text


def test_an_ensemble_offers_to_unload_what_only_it_uses(
    pipeline: Path, login: Any, operator: Any
) -> None:
    text = read(login(operator), "/models/pipeline/")

    assert "Also unload the models that only it uses: first, second" in text


def test_parts_that_somebody_asked_for_or_others_use_stay(
    pipeline: Path, login: Any, operator: Any
) -> None:
    DesiredModel.objects.create(
        worker_id="gpu-1", model="first", state=WantedState.LOADED, updated_at=timezone.now()
    )
    add_ensemble(pipeline, "other", PIPELINE.replace('"pipeline"', '"other"'))

    assert family_of("pipeline").only_it_uses == []
    text = read(login(operator), "/models/pipeline/")
    assert "Its parts stay loaded: others use them, or somebody asked for them by name." in text


def test_other_models_say_nothing_of_ensembles(echo: Path, login: Any, operator: Any) -> None:
    text = read(login(operator), "/models/echo/")

    for word in ("unload_dependents", "Used by", "ensemble", "Steps"):
        assert word not in text


def test_families_follow_the_files(repository: Path) -> None:
    add_pipeline(repository)
    add_ensemble(
        repository, "outer", PIPELINE.replace('"pipeline"', '"outer"').replace("first", "pipeline")
    )

    assert family_of("second").users == ["outer", "pipeline"]
    assert family_of("first").fall_with_it == ["outer", "pipeline"]

    (repository / "outer" / "config.pbtxt").write_text('name: "outer"')

    assert family_of("second").users == ["pipeline"]


def test_an_ensemble_that_needs_itself_breaks_no_page(
    repository: Path, login: Any, operator: Any
) -> None:
    add_ensemble(repository, "pipeline", PIPELINE.replace('"second"', '"pipeline"'))

    assert "2 steps answer one request" in read(login(operator), "/models/pipeline/")
