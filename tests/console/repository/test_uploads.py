"""The life of an upload: receive, check, mend, publish, with real files."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

from console.core.models import AuditEntry
from console.repository import publishing, selectors, services, staging
from console.repository.choices import UploadState
from console.repository.errors import LostUpdateError, PublishConflictError, RefusedError
from console.repository.models import ConfigRevision, Upload
from tests.console.disk import Committed
from tests.console.repository.packing import CONFIG, tar_with, write_model, zip_bytes

IDENT = {"ident/config.pbtxt": CONFIG, "ident/1/weights.bin": b"w1"}
WRONG = CONFIG.replace("max_batch_size: 4", "max_batch_size: four")


@pytest.fixture
def stage(repository: Path, operator: Any, committed: Committed) -> Any:
    """`stage(files)`: upload a zip (or one raw file) and run its checks."""

    def make(
        files: dict[str, Any] | None = None, *, name: str = "ident.zip", raw: bytes | None = None,
        **wishes: Any,
    ) -> Upload:  # fmt: skip
        content = zip_bytes(files or {}) if raw is None else raw
        with committed():
            upload = services.stage_upload(
                actor=operator, files=[(name, io.BytesIO(content))], **wishes
            )
        upload.refresh_from_db()
        return upload

    return make


def errors(upload: Upload) -> list[str]:
    return [row["message"] for row in upload.findings if row["severity"] == "error"]


def files_of(root: Path) -> set[str]:
    """Everything in the repository that is not Conch's own."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).parts[0].startswith(".")
    }


def test_a_valid_zip_is_checked_and_not_yet_visible(stage: Any, repository: Path) -> None:
    upload = stage(IDENT)

    assert upload.state == UploadState.CHECKED
    assert (upload.model, upload.versions, errors(upload)) == ("ident", [1], [])
    assert set(upload.manifest) == {"config.pbtxt", "1/weights.bin"}
    assert upload.manifest["1/weights.bin"]["sha256"] == hashlib.sha256(b"w1").hexdigest()
    assert files_of(repository) == set()
    assert selectors.models_on_disk() == []


def test_publishing_a_new_model_moves_it_and_keeps_a_revision(
    stage: Any, repository: Path, operator: Any, committed: Committed
) -> None:
    upload = stage(IDENT)

    with committed():
        services.publish(actor=operator, upload=upload)

    assert files_of(repository) == {"ident/config.pbtxt", "ident/1/weights.bin"}
    assert upload.state == UploadState.PUBLISHED
    revision = ConfigRevision.objects.get(model="ident")
    assert (revision.number, revision.source, revision.text) == (1, "upload", CONFIG)
    assert not staging.area(upload.id).root.exists()
    assert AuditEntry.objects.filter(action="publish upload", actor=operator).exists()


def test_a_mistake_in_the_config_is_found_on_its_line(stage: Any) -> None:
    upload = stage(IDENT | {"ident/config.pbtxt": WRONG})

    row = next(row for row in upload.findings if row["severity"] == "error")
    assert upload.state == UploadState.CHECKED
    assert (row["line"], row["file"]) == (3, "config.pbtxt")
    assert not upload.can_publish


def test_the_mistake_is_mended_within_the_upload(
    stage: Any, operator: Any, repository: Path
) -> None:
    upload = stage(IDENT | {"ident/config.pbtxt": WRONG})

    services.edit_config(actor=operator, upload=upload, text=CONFIG)

    upload.refresh_from_db()
    assert (errors(upload), upload.can_publish, upload.config_source) == ([], True, "edited")
    services.publish(actor=operator, upload=upload)
    assert (repository / "ident/config.pbtxt").read_text() == CONFIG


def test_two_editors_of_one_upload_do_not_overwrite_each_other(stage: Any, operator: Any) -> None:
    upload = stage(IDENT)
    seen = staging.text_sha256(CONFIG)
    services.edit_config(actor=operator, upload=upload, text=CONFIG + "# mine\n")

    with pytest.raises(LostUpdateError) as caught:
        services.edit_config(actor=operator, upload=upload, text="", expected_sha256=seen)

    assert caught.value.current_text.endswith("# mine\n")


def test_errors_stop_publishing(stage: Any, operator: Any, repository: Path) -> None:
    upload = stage(IDENT | {"ident/config.pbtxt": WRONG})

    with pytest.raises(RefusedError, match="1 error"):
        services.publish(actor=operator, upload=upload)

    assert files_of(repository) == set()


HOSTILE = [
    zip_bytes({"../../evil": "x"}),
    zip_bytes({"/etc/evil": "x"}),
    b"PK\x03\x04 half an archive",
    zip_bytes({}),
]


@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_archive_fails_and_leaves_nothing(
    stage: Any, repository: Path, content: bytes
) -> None:
    upload = stage(raw=content)

    assert upload.state == UploadState.FAILED
    assert upload.findings[0]["severity"] == "error"
    assert files_of(repository.parent) == set()
    assert not staging.area(upload.id).root.exists()


def test_a_link_in_a_tar_fails(stage: Any) -> None:
    import tarfile

    member = tarfile.TarInfo("m/1/model.onnx")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"

    upload = stage(raw=tar_with(member), name="m.tar")

    assert upload.state == UploadState.FAILED
    assert "link" in upload.error


def test_the_next_version_of_a_model_keeps_its_config(
    stage: Any, repository: Path, operator: Any
) -> None:
    write_model(repository)
    commented = "# ours\n" + CONFIG
    (repository / "ident/config.pbtxt").write_text(commented)

    upload = stage({"1/weights.bin": b"w2"}, version="next")

    assert (upload.model, upload.versions, upload.config_source) == ("ident", [2], "repository")
    services.publish(actor=operator, upload=upload)
    assert (repository / "ident/2/weights.bin").read_bytes() == b"w2"
    assert (repository / "ident/1/weights.bin").read_bytes() == b"w1"
    assert (repository / "ident/config.pbtxt").read_text() == commented


def test_a_new_config_with_a_version_keeps_the_old_one_as_a_revision(
    stage: Any, repository: Path, operator: Any
) -> None:
    write_model(repository)
    new = CONFIG.replace("max_batch_size: 4", "max_batch_size: 8")

    upload = stage({"ident/config.pbtxt": new, "ident/2/weights.bin": b"w2"})
    services.publish(actor=operator, upload=upload)

    assert (repository / "ident/config.pbtxt").read_text() == new
    texts = ConfigRevision.objects.filter(model="ident").order_by("number")
    assert [row.text for row in texts] == [CONFIG, new]


def test_a_version_that_exists_is_an_error_with_a_way_out(
    stage: Any, repository: Path, operator: Any
) -> None:
    write_model(repository, versions=(1, 3))

    upload = stage(IDENT)

    assert errors(upload) == ["Version 1 of 'ident' is already in the repository."]
    services.change_wish(actor=operator, upload=upload, model="", version="next")
    assert (upload.versions, errors(upload)) == ([4], [])


def test_a_version_published_meanwhile_is_a_conflict(
    stage: Any, repository: Path, operator: Any
) -> None:
    upload = stage(IDENT)
    write_model(repository)

    with pytest.raises(PublishConflictError) as caught:
        services.publish(actor=operator, upload=upload)

    assert caught.value.next_version == 2
    assert (repository / "ident/1/weights.bin").read_bytes() == b"w1"


def test_a_publication_that_fails_half_way_is_undone(
    stage: Any, repository: Path, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(repository)
    new = CONFIG.replace("max_batch_size: 4", "max_batch_size: 8")
    upload = stage({"ident/config.pbtxt": new, "ident/2/weights.bin": b"w2"})

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publishing.configs, "write_config", broken)
    with pytest.raises(Exception, match="No space left|nothing was published"):
        services.publish(actor=operator, upload=upload)

    assert not (repository / "ident/2").exists()
    assert (repository / "ident/config.pbtxt").read_text() == CONFIG
    upload.refresh_from_db()
    assert upload.state == UploadState.CHECKED
    assert staging.area(upload.id).model_directory("ident").joinpath("2/weights.bin").is_file()


def test_a_bare_file_without_a_name_can_be_named_later(stage: Any, operator: Any) -> None:
    upload = stage(raw=b"\x08\x07", name="model.py")

    assert upload.state == UploadState.CHECKED
    assert upload.findings[0]["field"] == "model"
    services.change_wish(actor=operator, upload=upload, model="echo", version="")
    assert (upload.model, upload.versions) == ("echo", [1])


def test_a_bare_config_is_checked_against_the_versions_on_disk(
    stage: Any, repository: Path, operator: Any
) -> None:
    write_model(repository)
    new = CONFIG.replace("max_batch_size: 4", "max_batch_size: 8")

    upload = stage(raw=new.encode(), name="config.pbtxt", model="ident")
    services.publish(actor=operator, upload=upload)

    assert (repository / "ident/config.pbtxt").read_text() == new
    assert selectors.versions_on_disk("ident") == [1]


def test_a_label_file_replaces_the_old_one(stage: Any, repository: Path, operator: Any) -> None:
    directory = write_model(repository)
    (directory / "labels.txt").write_text("cat\n")

    upload = stage({"ident/labels.txt": "dog\n", "ident/2/weights.bin": b"w2"})
    services.publish(actor=operator, upload=upload)

    assert (directory / "labels.txt").read_text() == "dog\n"


def test_junk_is_left_out_with_a_note(stage: Any) -> None:
    upload = stage(IDENT | {"__MACOSX/ident/._config.pbtxt": "x"})

    notes = [row["message"] for row in upload.findings if row["severity"] == "note"]
    assert any("__MACOSX" in note for note in notes)
    assert upload.can_publish


def test_discarding_removes_the_files_and_keeps_the_row(stage: Any, operator: Any) -> None:
    upload = stage(IDENT)

    services.discard_upload(actor=operator, upload=upload)

    assert upload.state == UploadState.DISCARDED
    assert not staging.area(upload.id).root.exists()
    with pytest.raises(RefusedError, match="nothing to discard"):
        services.discard_upload(actor=operator, upload=upload)


def test_publish_when_checked_publishes_without_a_person(stage: Any, repository: Path) -> None:
    upload = stage(IDENT, publish=True)

    assert upload.state == UploadState.PUBLISHED
    assert (repository / "ident/1/weights.bin").is_file()


def test_publish_when_checked_waits_where_there_are_errors(stage: Any, repository: Path) -> None:
    upload = stage(IDENT | {"ident/config.pbtxt": WRONG}, publish=True)

    assert upload.state == UploadState.CHECKED
    assert files_of(repository) == set()


def test_an_announced_digest_that_differs_fails(stage: Any) -> None:
    upload = stage(IDENT, sha256="0" * 64)

    assert upload.state == UploadState.FAILED
    assert "sha256" in upload.error


def test_a_broken_check_ends_as_errored_with_a_traceback(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("console.repository.validation.checks.check_directory", broken)

    upload = stage(IDENT)

    assert upload.state == UploadState.ERRORED
    assert "Traceback" in upload.error


def test_a_config_that_is_not_text_fails_with_the_place(stage: Any) -> None:
    upload = stage(IDENT | {"ident/config.pbtxt": b"name: \xff"})

    assert upload.state == UploadState.FAILED
    assert "byte 6" in upload.error


def test_a_folder_of_files_is_one_model(
    repository: Path, operator: Any, committed: Committed
) -> None:
    files = [(path, io.BytesIO(text.encode() if isinstance(text, str) else text))
             for path, text in IDENT.items()]  # fmt: skip

    with committed():
        upload = services.stage_upload(actor=operator, files=files)

    upload.refresh_from_db()
    assert (upload.model, upload.can_publish) == ("ident", True)


def test_a_model_that_is_too_deep_for_one_name_is_refused_before_it_is_staged(
    stage: Any, repository: Path
) -> None:
    upload = stage({"/".join("d" * 33) + "/x": "1"})

    assert upload.state == UploadState.FAILED
    assert "nested deeper" in upload.error


def test_an_uploaded_ensemble_is_checked_against_the_parts_in_the_repository(
    stage: Any, repository: Path
) -> None:
    write_model(repository)
    config = (
        'platform: "ensemble"\nmax_batch_size: 4\n'
        'input { name: "A" data_type: TYPE_INT8 dims: [ 3 ] }\n'
        'output { name: "B" data_type: TYPE_FP32 dims: [ 3 ] }\n'
        'ensemble_scheduling { step { model_name: "ident" model_version: -1\n'
        'input_map { key: "IN0" value: "A" } output_map { key: "OUT0" value: "B" } } }\n'
    )

    upload = stage({"both/config.pbtxt": config, "both/1/.keep": b""}, name="both.zip")

    (told,) = errors(upload)
    assert "ensemble tensor 'A' has an inconsistent data type" in told
