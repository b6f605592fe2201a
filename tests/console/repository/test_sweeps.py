"""What is done about uploads that nobody finished and tasks that got lost."""

from __future__ import annotations

import io
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from console.repository import services, staging
from console.repository.models import Upload
from console.repository.tasks import sweep_uploads
from tests.console.repository.packing import CONFIG, zip_bytes


def stage(operator: Any) -> Upload:
    content = io.BytesIO(zip_bytes({"ident/config.pbtxt": CONFIG, "ident/1/w": "1"}))
    return services.stage_upload(actor=operator, files=[("ident.zip", content)])


def age(upload: Upload, **changes: Any) -> None:
    Upload.objects.filter(pk=upload.pk).update(
        updated_at=timezone.now() - timedelta(days=30), **changes
    )


def test_a_check_that_got_lost_is_started_again(repository: Path, operator: Any) -> None:
    upload = stage(operator)
    assert upload.state == "checking"
    Upload.objects.update(updated_at=timezone.now() - timedelta(minutes=6))

    sweep_uploads()

    upload.refresh_from_db()
    assert upload.state == "checked"


def test_an_upload_that_nobody_finished_is_discarded(repository: Path, operator: Any) -> None:
    old, new = stage(operator), stage(operator)
    age(old, state="checked")

    sweep_uploads()

    assert Upload.objects.get(pk=old.pk).state == "discarded"
    assert not staging.area(old.id).root.exists()
    assert staging.area(new.id).root.exists()


def test_folders_that_belong_to_no_upload_are_removed_after_a_day(
    repository: Path, db: None
) -> None:
    stray, fresh = staging.staging_root() / "stray", staging.staging_root() / "fresh"
    for folder in (stray, fresh):
        folder.mkdir(parents=True)
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(stray, (yesterday, yesterday))

    sweep_uploads()

    assert (stray.exists(), fresh.exists()) == (False, True)
