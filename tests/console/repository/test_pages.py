"""Pages of the repository and of uploads: who may, what they show, what they do."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.repository import services, staging
from console.repository.checks import check_directory
from console.repository.models import TrashEntry, Upload
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.repository.packing import CONFIG, write_model, zip_bytes
from workers.messages import BackendState

WRONG = CONFIG.replace("max_batch_size: 4", "max_batch_size: four")
IDENT = {"ident/config.pbtxt": CONFIG, "ident/1/weights.bin": b"w1"}


@pytest.fixture
def model(repository: Path) -> Path:
    return write_model(repository)


@pytest.fixture
def uploaded(repository: Path, operator: Any, committed: Committed) -> Any:
    def make(files: Any = None) -> Upload:
        content = io.BytesIO(zip_bytes(files or IDENT))
        with committed():
            upload = services.stage_upload(actor=operator, files=[("ident.zip", content)])
        upload.refresh_from_db()
        return upload

    return make


def text_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


READ = [
    "/repository/",
    "/repository/ident",
    "/repository/ident/1",
    "/repository/ident/config.pbtxt",
]


@pytest.mark.parametrize("path", READ)
def test_reading_needs_the_role_viewer(
    model: Path, login: Any, viewer: Any, stranger: Any, path: str
) -> None:
    assert Client().get(path).status_code == 302
    assert login(stranger).get(path).status_code == 403
    assert login(viewer).get(path).status_code == 200


def test_uploading_needs_the_role_operator(
    repository: Path, login: Any, viewer: Any, operator: Any
) -> None:
    assert Client().get("/repository/upload/").status_code == 302
    assert login(viewer).get("/repository/upload/").status_code == 403
    assert login(operator).get("/repository/upload/").status_code == 200


def test_who_may_not_upload_gets_no_link_to_it(
    uploaded: Any, login: Any, viewer: Any, operator: Any
) -> None:
    failed = uploaded()
    Upload.objects.update(state="failed", error="It was cut off.")

    link = 'href="/repository/upload/"'
    assert link in login(operator).get(failed.get_absolute_url()).content.decode()
    assert link not in login(viewer).get(failed.get_absolute_url()).content.decode()


@pytest.mark.parametrize("deed", ["config", "wish", "publish", "discard"])
def test_changing_an_upload_needs_the_role_operator(
    uploaded: Any, login: Any, viewer: Any, deed: str
) -> None:
    upload = uploaded()

    assert Client().post(f"{upload.get_absolute_url()}{deed}/").status_code == 302
    assert login(viewer).post(f"{upload.get_absolute_url()}{deed}/").status_code == 403
    assert login(viewer).get(upload.get_absolute_url()).status_code == 200


@pytest.mark.parametrize("path", ["-/delete/ident/1/", "-/delete/ident/", "-/restore/1/"])
def test_deleting_needs_the_role_admin(model: Path, login: Any, operator: Any, path: str) -> None:
    assert Client().post(f"/repository/{path}").status_code == 302
    assert login(operator).post(f"/repository/{path}").status_code == 403
    assert login(operator).get(f"/repository/{path}").status_code == 405
    assert (model / "1").is_dir()


def test_the_browser_lists_versions_files_and_what_the_checks_say(
    model: Path, login: Any, viewer: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker(models=[make_model("ident", "1")])]

    text = text_of(login(viewer).get("/repository/ident/"))

    assert "1/" in text
    assert "config.pbtxt" in text
    assert "parses" in text
    assert "served: version 1" in text


def test_a_broken_config_shows_its_first_error_in_the_listing(
    model: Path, login: Any, viewer: Any
) -> None:
    (model / "config.pbtxt").write_text(WRONG)

    text = text_of(login(viewer).get("/repository/ident"))

    assert "max_batch_size" in text
    assert "parses" not in text


def test_text_is_escaped_and_binary_is_offered_as_download(
    model: Path, login: Any, viewer: Any
) -> None:
    (model / "labels.txt").write_text("<script>alert(1)</script>")
    client = login(viewer)

    assert b"<script>alert" not in client.get("/repository/ident/labels.txt").content
    (model / "1/weights.bin").write_bytes(b"\0\1")
    assert "Download it instead" in text_of(client.get("/repository/ident/1/weights.bin"))
    download = client.get("/repository/ident/1/weights.bin?download")
    assert b"".join(download.streaming_content) == b"\0\1"
    assert download["Content-Disposition"] == 'attachment; filename="weights.bin"'
    assert download["Content-Type"] == "application/octet-stream"


def test_the_digest_is_computed_when_asked_for(model: Path, login: Any, viewer: Any) -> None:
    answer = login(viewer).get("/repository/ident/1/weights.bin?sha256")

    assert staging.file_sha256(model / "1/weights.bin") in answer.content.decode()


@pytest.mark.parametrize(
    "path", ["nope", "../etc", "%2e%2e/%2e%2e/etc/passwd", ".conch", "ident/9"]
)
def test_what_is_not_there_is_a_404(model: Path, login: Any, viewer: Any, path: str) -> None:
    assert login(viewer).get(f"/repository/{path}").status_code == 404


def test_the_form_alone_uploads_and_checks(
    repository: Path, login: Any, operator: Any, committed: Committed
) -> None:
    archive = io.BytesIO(zip_bytes(IDENT))
    archive.name = "ident.zip"
    client = login(operator)

    with committed():
        answer = client.post("/repository/upload/", {"files": archive, "model": "", "version": ""})

    upload = Upload.objects.get()
    assert answer.url == upload.get_absolute_url()
    assert "Publishing adds the new model ident" in text_of(client.get(answer.url))


def test_the_form_takes_a_folder_with_its_paths(
    repository: Path, login: Any, operator: Any, committed: Committed
) -> None:
    files = [io.BytesIO(CONFIG.encode()), io.BytesIO(b"w1")]
    files[0].name, files[1].name = "config.pbtxt", "weights.bin"

    with committed():
        login(operator).post("/repository/upload/", {"files": files, "paths": list(IDENT)})

    assert Upload.objects.get().model == "ident"


def test_the_form_without_a_file_says_so(repository: Path, login: Any, operator: Any) -> None:
    answer = login(operator).post("/repository/upload/", {"model": "x"})

    assert answer.status_code == 400
    assert "Choose a file." in text_of(answer)


@pytest.mark.parametrize(("field", "value"), [("model", "../x"), ("version", "01")])
def test_a_bad_name_or_version_is_shown_at_its_field(
    repository: Path, login: Any, operator: Any, field: str, value: str
) -> None:
    archive = io.BytesIO(zip_bytes(IDENT))
    archive.name = "ident.zip"

    answer = login(operator).post("/repository/upload/", {"files": archive, field: value})

    assert answer.status_code == 400
    assert f'id="id_{field}_error"' in answer.content.decode()
    assert not Upload.objects.exists()


def test_errors_lead_to_their_lines_and_stop_publishing(
    uploaded: Any, login: Any, operator: Any, repository: Path
) -> None:
    upload = uploaded(IDENT | {"ident/config.pbtxt": WRONG})
    client = login(operator)

    page = client.get(upload.get_absolute_url())
    assert 'data-go-line="3"' in page.content.decode()
    assert "Errors stop publishing" in text_of(page)
    assert "2 files, " in text_of(page)

    answer = client.post(f"{upload.get_absolute_url()}publish/", {"action": "publish"}, follow=True)
    assert "mend them first" in text_of(answer)
    assert not (repository / "ident").exists()


def test_mend_publish_and_load_on_the_pages(
    uploaded: Any, login: Any, operator: Any, repository: Path, committed: Committed,
    fake_workers: FakeWorkerClient,
) -> None:  # fmt: skip
    fake_workers.infos = [make_worker("gpu-1")]
    upload = uploaded(IDENT | {"ident/config.pbtxt": WRONG})
    client, url = login(operator), upload.get_absolute_url()

    client.post(f"{url}config/", {"text": CONFIG.replace("\n", "\r\n")})
    with committed():
        answer = client.post(f"{url}publish/", {"action": "publish_load"})

    assert (repository / "ident/config.pbtxt").read_text() == CONFIG
    assert answer.url.startswith("/deployments/")
    assert [call.model for call in fake_workers.calls] == ["ident"]
    assert "Loading gpu-1" in text_of(client.get(answer.url))


def test_typing_is_checked_without_saving(uploaded: Any, login: Any, viewer: Any) -> None:
    upload = uploaded()

    answer = login(viewer).post(f"{upload.get_absolute_url()}check/", {"text": WRONG})

    assert 'data-line="3"' in answer.content.decode()
    upload.refresh_from_db()
    assert upload.config_text == CONFIG


def test_a_text_that_is_mended_and_not_saved_says_what_to_press(
    uploaded: Any, login: Any, operator: Any
) -> None:
    upload = uploaded(IDENT | {"ident/config.pbtxt": WRONG})
    client = login(operator)

    shown = text_of(client.get(upload.get_absolute_url()))
    mended = text_of(client.post(f"{upload.get_absolute_url()}check/", {"text": CONFIG}))
    undone = text_of(client.post(f"{upload.get_absolute_url()}check/", {"text": WRONG}))

    assert "press Save and check" not in shown
    assert "has no errors any more, and is not saved yet: press Save and check" in mended
    assert "Errors stop publishing" not in mended
    assert "Errors stop publishing" in undone


def test_a_second_editor_keeps_the_typed_text_on_a_conflict(
    uploaded: Any, login: Any, operator: Any
) -> None:
    upload = uploaded()
    client, url = login(operator), upload.get_absolute_url()
    client.post(f"{url}config/", {"text": CONFIG + "# first\n"})

    answer = client.post(
        f"{url}config/",
        {"text": CONFIG + "# second\n", "expected_sha256": staging.text_sha256(CONFIG)},
    )

    assert answer.status_code == 409
    assert "# second" in answer.content.decode()


def test_a_running_check_polls_and_then_brings_the_page(
    uploaded: Any, login: Any, viewer: Any
) -> None:
    upload = uploaded()
    client = login(viewer)
    Upload.objects.update(state="checking")
    assert 'hx-trigger="every 1s"' in client.get(upload.get_absolute_url()).content.decode()

    Upload.objects.update(state="checked")
    answer = client.get(upload.get_absolute_url(), headers={"HX-Request": "true"})

    assert answer["HX-Refresh"] == "true"


def test_discard_is_confirmed_and_done(uploaded: Any, login: Any, operator: Any) -> None:
    upload = uploaded()
    client = login(operator)

    assert "cannot be restored" in text_of(client.get(upload.get_absolute_url()))
    answer = client.post(f"{upload.get_absolute_url()}discard/", follow=True)

    assert "discarded" in text_of(answer)
    assert not staging.area(upload.id).root.exists()


def test_a_version_goes_to_the_trash_and_back(model: Path, login: Any, admin: Any) -> None:
    client = login(admin)

    page = client.post("/repository/-/delete/ident/1/", follow=True)
    assert "is in the trash" in text_of(page)
    assert not (model / "1").exists()

    entry = TrashEntry.objects.get()
    client.post(f"/repository/-/restore/{entry.pk}/")
    assert (model / "1").is_dir()


def test_deleting_a_model_asks_for_its_name(model: Path, login: Any, admin: Any) -> None:
    client = login(admin)

    client.post("/repository/-/delete/ident/", {"confirm": "other"})
    assert model.is_dir()

    client.post("/repository/-/delete/ident/", {"confirm": "ident"})
    assert not model.exists()


def test_every_state_of_an_upload_has_a_page(uploaded: Any, login: Any, operator: Any) -> None:
    upload = uploaded()
    client = login(operator)

    for state in ("staged", "checking", "checked", "published", "discarded", "failed", "errored"):
        Upload.objects.update(state=state, error="why", published_at=upload.created_at)
        assert client.get(upload.get_absolute_url()).status_code == 200
        assert client.get("/repository/upload/").status_code == 200


def test_an_empty_repository_says_what_to_do(repository: Path, login: Any, operator: Any) -> None:
    assert "Upload a model" in text_of(login(operator).get("/repository/"))


def test_a_repository_that_is_not_there_yet_is_empty(
    repository: Path, login: Any, viewer: Any
) -> None:
    repository.rmdir()

    assert "The repository is empty" in text_of(login(viewer).get("/repository/"))


@pytest.mark.parametrize(("package", "is_told"), [("", True), ("vllm", False)])
def test_a_check_tells_that_no_worker_has_the_runtime(
    repository: Path, fake_workers: FakeWorkerClient, package: str, is_told: bool
) -> None:
    backend = BackendState(
        "vllm", package=package, problem="its package 'vllm' is missing", install="pip install vllm"
    )
    fake_workers.infos = [make_worker("alpha", backends=[backend])]
    directory = write_model(repository, config='backend: "vllm"')

    told = [item.hint for item in check_directory(directory) if item.code == "RUNTIME"]

    assert told == (["on a worker: pip install vllm, then start it anew"] if is_told else [])


def test_a_check_tells_that_no_worker_knows_the_backend(
    repository: Path, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("alpha", backends=[BackendState("pytorch")])]
    directory = write_model(repository, config='backend: "pytroch"')

    (told,) = [item for item in check_directory(directory) if item.code == "RUNTIME"]
    assert told.message == "no worker knows a backend 'pytroch'"
    assert told.hint == "did you mean 'pytorch'? They have pytorch"

    (directory / "1" / "conch_pytroch.py").touch()

    assert not [item for item in check_directory(directory) if item.code == "RUNTIME"]
