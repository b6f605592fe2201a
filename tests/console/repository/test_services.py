"""Configs, revisions, policies, deletes: services on real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.core.models import AuditEntry
from console.deployments import operations
from console.deployments import services as deployments
from console.deployments.models import Deployment, DesiredModel
from console.repository import configs, selectors, services, versions
from console.repository.errors import LostUpdateError, RefusedError
from console.repository.models import ConfigRevision, TrashEntry
from console.repository.tasks import record_manifest
from serving.errors import InvalidArgumentError, NotFoundError
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.repository.packing import CONFIG, write_model

EIGHT = CONFIG.replace("max_batch_size: 4", "max_batch_size: 8")


@pytest.fixture
def model(repository: Path) -> Path:
    return write_model(repository, versions=(1, 2))


def numbers(model: str = "ident") -> list[int]:
    return list(
        ConfigRevision.objects.filter(model=model)
        .order_by("number")
        .values_list("number", flat=True)
    )


def test_saving_writes_the_file_and_both_revisions(model: Path, operator: Any) -> None:
    saved = services.save_config(actor=operator, model="ident", text=EIGHT, reason="more")

    assert (model / "config.pbtxt").read_text() == EIGHT
    assert (saved.revision.number, saved.revision.reason, saved.deployment) == (2, "more", None)
    assert numbers() == [1, 2]
    entry = AuditEntry.objects.get(action="save config")
    assert (entry.detail["from"], entry.detail["to"]) == (1, 2)


def test_saving_an_invalid_config_is_refused_with_its_line(model: Path, operator: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        services.save_config(actor=operator, model="ident", text=CONFIG.replace("FP32", "FP33", 1))

    assert caught.value.findings[0]["line"] == 4
    assert (model / "config.pbtxt").read_text() == CONFIG
    assert numbers() == []


def test_a_lost_update_is_a_conflict_with_the_current_text(model: Path, operator: Any) -> None:
    seen = configs.config_sha256(CONFIG)
    services.save_config(actor=operator, model="ident", text=EIGHT, expected_sha256=seen)

    with pytest.raises(LostUpdateError) as caught:
        services.save_config(actor=operator, model="ident", text=CONFIG, expected_sha256=seen)

    assert caught.value.current_text == EIGHT
    assert (model / "config.pbtxt").read_text() == EIGHT


def test_saving_the_same_text_again_makes_no_revision(model: Path, operator: Any) -> None:
    services.save_config(actor=operator, model="ident", text=EIGHT)
    services.save_config(actor=operator, model="ident", text=EIGHT)

    assert numbers() == [1, 2]


def test_save_and_load_makes_a_deployment(model: Path, operator: Any) -> None:
    saved = services.save_config(actor=operator, model="ident", text=EIGHT, load=True)

    assert saved.deployment == Deployment.objects.get()
    assert saved.deployment.revision == saved.revision


def test_a_config_is_written_for_a_model_without_one(repository: Path, operator: Any) -> None:
    write_model(repository, config=None)
    assert services.read_config("ident") is None

    services.save_config(
        actor=operator, model="ident", text=CONFIG, expected_sha256=configs.NO_CONFIG_SHA256
    )

    assert [row.is_absent for row in selectors.revisions_for("ident")] == [False, True]


def test_a_config_changed_outside_becomes_a_revision_of_nobody(model: Path, operator: Any) -> None:
    services.save_config(actor=operator, model="ident", text=EIGHT)
    (model / "config.pbtxt").write_text(CONFIG)

    revision = configs.current_revision("ident")

    assert (revision.number, revision.source, revision.actor) == (3, "found", None)


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ({"latest": {"num_versions": 2}}, "latest"),
        ({"all": {}}, "all"),
        ({"specific": {"versions": [2, 1]}}, "specific"),
    ],
)
def test_a_policy_changes_nothing_else_in_the_file(
    model: Path, operator: Any, policy: dict[str, Any], line: str
) -> None:
    commented = "# keep me\n" + CONFIG
    (model / "config.pbtxt").write_text(commented)

    saved = services.set_version_policy(actor=operator, model="ident", policy=policy)

    text = (model / "config.pbtxt").read_text()
    assert "# keep me" in text
    assert line in text
    assert text.replace(" ", "").startswith(commented.replace(" ", "").rstrip())
    assert saved.revision.source == "policy"


@pytest.mark.parametrize(
    "policy",
    [{}, {"newest": {}}, {"latest": {"num_versions": 0}}, {"latest": {"num_versions": True}},
     {"latest": 2}, {"specific": {}}, {"specific": {"versions": []}},
     {"specific": {"versions": ["1"]}}, {"all": {}, "latest": {"num_versions": 1}}],
)  # fmt: skip
def test_a_bad_policy_is_refused(model: Path, operator: Any, policy: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as caught:
        services.set_version_policy(actor=operator, model="ident", policy=policy)

    assert "policy" in caught.value.fields


@pytest.mark.parametrize("name", ["nope", "../x", "", "a/b", ".conch"])
def test_an_unknown_model_is_not_found(repository: Path, operator: Any, name: str) -> None:
    with pytest.raises(NotFoundError):
        services.save_config(actor=operator, model=name, text=CONFIG)


def test_a_deleted_version_can_be_restored(model: Path, admin: Any) -> None:
    entry = services.delete_version(actor=admin, model="ident", version=1)

    assert selectors.versions_on_disk("ident") == [2]
    services.restore_deleted(actor=admin, entry=entry)
    assert (model / "1/weights.bin").read_bytes() == b"w1"
    with pytest.raises(NotFoundError, match="no longer in the trash"):
        services.restore_deleted(actor=admin, entry=entry)


def test_a_served_version_is_not_deleted(
    model: Path, admin: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1", models=[make_model("ident", "2")])]

    with pytest.raises(RefusedError, match="served by gpu-1"):
        services.delete_version(actor=admin, model="ident", version=2)
    with pytest.raises(RefusedError, match="Unload it first"):
        services.delete_model(actor=admin, model="ident")

    assert services.delete_version(actor=admin, model="ident", version=1)


def test_a_model_that_is_just_being_loaded_is_not_deleted(
    model: Path, admin: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    """The heartbeat that shows the load may still be on its way."""
    fake_workers.infos = [make_worker("gpu-1")]
    deployments.load_model(actor=operator, model="ident")

    with pytest.raises(InvalidArgumentError, match="still runs"):
        services.delete_model(actor=admin, model="ident")
    with pytest.raises(InvalidArgumentError, match="still runs"):
        services.delete_version(actor=admin, model="ident", version=1)


def test_a_deleted_model_is_no_longer_wanted_and_can_come_back(model: Path, admin: Any) -> None:
    services.save_config(actor=admin, model="ident", text=EIGHT, load=True)
    # No worker is connected: it fails, and the model stays wanted.
    operations.dispatch(Deployment.objects.get().pk)

    entry = services.delete_model(actor=admin, model="ident")

    assert not model.exists()
    assert not DesiredModel.objects.exists()
    services.restore_deleted(actor=admin, entry=entry)
    assert services.read_config("ident") == EIGHT


def test_restoring_over_something_new_is_refused(model: Path, admin: Any) -> None:
    entry = services.delete_version(actor=admin, model="ident", version=1)
    (model / "1").mkdir()

    with pytest.raises(RefusedError, match="in the repository again"):
        services.restore_deleted(actor=admin, entry=entry)


def test_old_trash_is_purged(model: Path, admin: Any, settings: Any) -> None:
    services.delete_version(actor=admin, model="ident", version=1)
    settings.CONCH_TRASH_DAYS = 0

    assert versions.purge_trash() == 1
    assert not TrashEntry.objects.exists()
    assert list(versions.trash_root().iterdir()) == []


def test_a_revision_gets_the_hashes_of_the_versions_beside_it(model: Path, db: None) -> None:
    revision = configs.current_revision("ident")

    record_manifest(revision.pk)

    revision.refresh_from_db()
    assert set(revision.manifest) == {"1", "2"}
    assert len(revision.manifest["2"]["weights.bin"]["sha256"]) == 64


def test_digests_are_read_again_when_a_file_changes(model: Path, db: None) -> None:
    before = selectors.digest_of("ident/1/weights.bin")
    assert selectors.digest_of("ident/1/weights.bin") == before

    (model / "1/weights.bin").write_bytes(b"other bytes")

    assert selectors.digest_of("ident/1/weights.bin") != before


@pytest.mark.parametrize("path", ["../", "ident/../..", ".conch", ".conch/staging", "nope", "/etc"])
def test_the_browser_stays_in_the_repository(model: Path, path: str, db: None) -> None:
    (model.parent / ".conch/staging").mkdir(parents=True)

    with pytest.raises(NotFoundError):
        selectors.resolve(path)


def test_a_link_out_of_the_repository_is_not_followed(model: Path) -> None:
    (model / "1/secret").symlink_to("/etc/passwd")

    with pytest.raises(NotFoundError):
        selectors.resolve("ident/1/secret")


def test_hidden_folders_and_stray_files_are_no_models(model: Path) -> None:
    (model.parent / ".conch").mkdir(exist_ok=True)
    (model.parent / "notes.txt").write_text("x")

    assert [entry.name for entry in selectors.list_directory("").entries] == ["ident"]
    assert [item.name for item in selectors.models_on_disk()] == ["ident"]


def test_versions_are_listed_newest_first_before_files(model: Path) -> None:
    names = [entry.name for entry in selectors.list_directory("ident").entries]

    assert names == ["2", "1", "config.pbtxt"]
