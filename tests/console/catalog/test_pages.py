"""The models pages: who may see and do what, and what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from console.deployments.choices import WantedState
from console.deployments.models import Deployment, DesiredModel
from tests.console.catalog.conftest import add_model
from tests.console.fakes import (
    FakeWorkerClient,
    make_model,
    make_model_sample,
    make_sample,
    make_worker,
)

pytestmark = pytest.mark.django_db

READ_PAGES = [
    "/models/",
    "/models/echo/",
    "/models/echo/header/?tab=model",
    "/models/echo/header/?tab=nonsense",
    "/models/echo/versions/",
    "/models/echo/config/",
    "/models/echo/statistics/",
    "/models/echo/try/",
    "/models/echo/history/",
]
OPERATOR_POSTS = [
    "/models/",
    "/models/echo/load/",
    "/models/echo/unload/",
    "/models/echo/versions/policy/",
    "/models/echo/versions/1/load/",
    "/models/echo/versions/2/unload/",
    "/models/echo/config/",
]


def text_of(response: Any) -> str:
    return str(response.content.decode())


@pytest.mark.parametrize("path", READ_PAGES)
class TestReading:
    def test_anonymous_is_sent_to_the_login(self, served: FakeWorkerClient, path: str) -> None:
        response = Client().get(path)

        assert response.status_code == 302
        assert response["Location"].startswith("/login/?next=/models/")

    def test_somebody_without_a_role_is_refused(
        self, served: FakeWorkerClient, login: Any, stranger: Any, path: str
    ) -> None:
        assert login(stranger).get(path).status_code == 403

    def test_a_viewer_reads_without_controls_that_change(
        self, served: FakeWorkerClient, login: Any, viewer: Any, path: str
    ) -> None:
        response = login(viewer).get(path)

        assert response.status_code == 200
        assert "echo" in text_of(response)
        assert "Unload…" not in text_of(response)
        assert "Save and load" not in text_of(response)

    def test_an_operator_reads(
        self, served: FakeWorkerClient, login: Any, operator: Any, path: str
    ) -> None:
        assert login(operator).get(path).status_code == 200


@pytest.mark.parametrize("path", OPERATOR_POSTS)
def test_a_viewer_changes_nothing(
    served: FakeWorkerClient, login: Any, viewer: Any, path: str
) -> None:
    response = login(viewer).post(path, {"model": "echo", "action": "unload"})

    assert response.status_code == 403
    assert not Deployment.objects.exists()


def test_only_an_admin_deletes_a_version(
    served: FakeWorkerClient, echo: Path, login: Any, operator: Any, admin: Any
) -> None:
    path = "/models/echo/versions/1/delete/"

    assert login(operator).post(path, {"confirm-1": "echo"}).status_code == 403
    assert (echo / "1").is_dir()

    assert login(admin).post(path, {"confirm-1": "ecco"}).status_code == 302
    assert (echo / "1").is_dir()

    assert login(admin).post(path, {"confirm-1": "echo"}).status_code == 302
    assert not (echo / "1").exists()


@pytest.mark.parametrize("path", ["/models/nothing/", "/models/nothing/config/"])
def test_an_unknown_model_is_named_in_the_404(
    repository: Path, login: Any, viewer: Any, path: str
) -> None:
    response = login(viewer).get(path)

    assert response.status_code == 404
    assert "There is no model &#x27;nothing&#x27;" in text_of(response)


class TestList:
    def test_joins_disk_workers_and_rates(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        served.sample_list = [make_sample("gpu-1", models=[make_model_sample("echo", "2")])]

        text = text_of(login(viewer).get("/models/"))

        assert "1 model · 1 ready" in text
        assert "(of 2)" in text
        assert "1 × gpu-1" in text
        assert "200" in text

    def test_the_reason_of_a_failure_stands_under_its_row(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        bad = make_model("echo", "2", "UNAVAILABLE", reason="the file is cut off")
        served.infos = [make_worker("gpu-1", models=[bad])]

        text = text_of(login(viewer).get("/models/"))

        assert "v2 on gpu-1: the file is cut off" in text
        assert "(2 failed)" in text

    def test_filters_live_in_the_address(
        self, repository: Path, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        add_model(repository, "other")
        client = login(viewer)

        assert "1 of 2 models" in text_of(client.get("/models/?q=oth"))
        ready = text_of(client.get("/models/?state=ready&backend=onnxruntime&worker=gpu-1"))
        assert "/models/echo/" in ready
        assert "/models/other/" not in ready
        assert "No model fits these filters" in text_of(client.get("/models/?q=zzz"))

    def test_a_state_that_does_not_exist_filters_nothing(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        assert "/models/echo/" in text_of(login(viewer).get("/models/?state=nonsense"))

    def test_htmx_gets_the_list_alone(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        text = text_of(login(viewer).get("/models/", headers={"HX-Request": "true"}))

        assert "<html" not in text
        assert 'id="models"' in text

    def test_an_empty_repository_says_what_to_do(
        self, repository: Path, login: Any, operator: Any
    ) -> None:
        text = text_of(login(operator).get("/models/"))

        assert "The repository holds no models yet." in text
        assert "Upload a model" in text

    def test_a_registry_that_is_away_is_said_and_models_are_still_listed(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        served.error = ConnectionError("connection refused")

        text = text_of(login(viewer).get("/models/"))

        assert "connection refused" in text
        assert "/models/echo/" in text

    def test_the_number_of_queries_does_not_grow_with_the_models(
        self, repository: Path, login: Any, viewer: Any, django_assert_max_num_queries: Any
    ) -> None:
        for number in range(6):
            add_model(repository, f"m{number}", versions=(1,))
        client = login(viewer)

        with django_assert_max_num_queries(5):
            client.get("/models/")


def test_a_wanted_model_that_nobody_serves_is_a_warning_not_a_blank(
    echo: Path, login: Any, operator: Any
) -> None:
    client = login(operator)
    client.post("/models/echo/load/")
    Deployment.objects.update(state="succeeded")

    assert "should be served, and no worker serves it<" in text_of(client.get("/models/"))
    Deployment.objects.update(state="failed", error="vm: the file is cut off")
    assert "no worker serves it: vm: the file is cut off" in text_of(client.get("/models/"))
    header = text_of(client.get("/models/echo/header/"))
    assert "state--warn" in header
    assert "oscar asked for it to be served. No worker serves it." in header
    assert "The last attempt failed: vm: the file is cut off" in header


def test_while_an_operation_runs_the_header_says_so(echo: Path, login: Any, operator: Any) -> None:
    client = login(operator)
    client.post("/models/echo/load/")

    header = text_of(client.get("/models/echo/header/?tab=versions"))

    assert "asked for by oscar" in header
    assert 'data-part="header"' in header
    assert 'data-part="versions"' in header
    assert "csrfmiddlewaretoken" not in header


@pytest.mark.parametrize("name", ["my model", "modèle", "a&b<c>", "%41"])
def test_folders_with_odd_names_have_pages_too(
    repository: Path, login: Any, operator: Any, name: str
) -> None:
    add_model(repository, name, versions=(1,))
    client = login(operator)

    assert client.get("/models/").status_code == 200
    for page in ("", "versions/", "config/", "statistics/", "try/", "history/"):
        response = client.get(f"/models/{quote(name)}/{page}")
        assert response.status_code == 200
        assert "<c>" not in text_of(response)


class TestActing:
    def test_loading_makes_a_deployment(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        response = login(operator).post("/models/echo/load/", {"worker": "gpu-1"}, follow=True)

        deployment = Deployment.objects.get()
        assert (deployment.action, deployment.worker_ids) == ("load", ["gpu-1"])
        assert "echo is being loaded" in text_of(response)

    def test_unloading_one_version(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        login(operator).post("/models/echo/versions/2/unload/")

        assert Deployment.objects.get().versions == [2]

    def test_loading_one_version_keeps_those_that_are_served(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        login(operator).post("/models/echo/versions/1/load/")

        assert Deployment.objects.get().versions == [1, 2]

    def test_a_version_that_is_not_there_is_refused_with_a_sentence(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        response = login(operator).post("/models/echo/versions/9/load/", follow=True)

        assert "has no version 9" in text_of(response)
        assert not Deployment.objects.exists()

    def test_several_models_at_once(
        self, repository: Path, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        add_model(repository, "other")

        chosen = {"model": ["echo", "other"], "action": "load"}
        response = login(operator).post("/models/?q=e", chosen, follow=True)

        assert {row.model for row in Deployment.objects.all()} == {"echo", "other"}
        assert "Loading 2 models was asked for." in text_of(response)

    def test_nothing_chosen_is_said(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        response = login(operator).post("/models/", {"action": "load"}, follow=True)

        assert "No model was chosen" in text_of(response)

    def test_the_unload_dialog_names_the_waiting_requests(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        served.sample_list = [
            make_sample("gpu-1", models=[make_model_sample("echo", "2", queued=37)])
        ]

        text = " ".join(text_of(login(operator).get("/models/echo/")).split())

        assert "37 requests wait in its queue; they will be finished first." in text


class TestVersions:
    def test_the_summary_names_the_versions_that_were_asked_for_beside_the_policy(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        client = login(viewer)
        assert "<dd>the latest version" in text_of(client.get("/models/echo/"))

        DesiredModel.objects.create(
            model="echo", state=WantedState.LOADED, versions=[1], updated_at=timezone.now()
        )
        text = text_of(client.get("/models/echo/"))

        assert "version 1, as last asked for; the policy names the latest version" in text
        text = text_of(login(viewer).get("/models/echo/versions/"))
        assert "version 1, as last asked for; the policy names the latest version" in text

    def test_lists_what_is_on_disk_and_what_is_served(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        text = text_of(login(viewer).get("/models/echo/versions/"))

        assert "serves the latest version" in text
        assert "outside the policy" in text
        assert "gpu-1 × 1" in text

    def test_the_policy_changes_and_the_comments_stay(
        self, echo: Path, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        data = {"kind": "specific", "versions": "1, 2", "action": "save"}

        login(operator).post("/models/echo/versions/policy/", data)

        text = (echo / "config.pbtxt").read_text()
        assert text.startswith("# Gives back what it gets.\n")
        assert "version_policy { specific { versions: [ 1, 2 ] } }" in text

    def test_a_wrong_policy_is_shown_again_with_its_mistake(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        response = login(operator).post("/models/echo/versions/policy/", {"kind": "latest"})

        assert response.status_code == 422
        assert "Say how many of the latest versions" in text_of(response)


class TestOtherTabs:
    def test_try_it_hands_the_model_to_its_script(
        self, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        text = text_of(login(operator).get("/models/echo/try/"))

        assert '"infer_path": "/v2/models/echo"' in text
        assert 'data-view="form"' in text

    def test_try_it_of_a_model_that_nobody_serves_says_so(
        self, echo: Path, login: Any, operator: Any
    ) -> None:
        assert "No worker serves echo now." in text_of(login(operator).get("/models/echo/try/"))

    def test_a_viewer_is_told_which_role_trying_needs(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        text = text_of(login(viewer).get("/models/echo/try/"))

        assert "needs the role operator" in text

    def test_history_lists_deployments_and_changes_of_this_model_only(
        self, repository: Path, served: FakeWorkerClient, login: Any, operator: Any
    ) -> None:
        add_model(repository, "echo2")
        client = login(operator)
        client.post("/models/echo/load/")
        client.post("/models/echo2/load/")

        text = text_of(client.get("/models/echo/history/"))

        assert "Load model" in text
        assert "<td>echo</td>" in text
        assert "<td>echo2</td>" not in text
