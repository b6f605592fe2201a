"""config.pbtxt on disk and its revisions: read, write, remember. Knows nothing of deployments.

Any thread; writers of one model exclude each other with a file lock in the hidden folder, across
processes. A text is replaced by a rename, so that a reader never sees half of it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from console.core.background import start_on_commit
from console.repository import staging
from console.repository.arrange import CONFIG_NAME
from console.repository.choices import RevisionSource
from console.repository.errors import LostUpdateError
from console.repository.models import ConfigRevision
from console.repository.names import NameRefusedError, check_model_name
from serving.errors import NotFoundError

NO_CONFIG_SHA256 = staging.text_sha256("")
MAX_CONFIG_BYTES = 1 << 20


def model_directory(model: str) -> Path:
    """The directory of an existing model. Raises NotFoundError."""
    directory = directory_for(model)
    if not directory.is_dir():
        raise NotFoundError(f"There is no model '{model}' in the repository.")
    return directory


def directory_for(model: str) -> Path:
    """Where `model` lies or would lie. Raises NotFoundError for what cannot be a name."""
    try:
        name = check_model_name(model)
    except NameRefusedError as error:
        raise NotFoundError(str(error)) from error
    return staging.repository_root() / name


@contextmanager
def model_lock(model: str) -> Iterator[None]:
    """Only one process changes the files of a model at a time.

    Taken before a transaction begins, never inside one: on SQLite a transaction excludes all other
    writers, and one of them may hold this lock.
    """
    folder = staging.hidden_root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{model}.lock").open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_config(model: str) -> str | None:
    """The text of the model's config.pbtxt, None when it has none. Raises NotFoundError."""
    path = model_directory(model) / CONFIG_NAME
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def config_sha256(text: str | None) -> str:
    return NO_CONFIG_SHA256 if text is None else staging.text_sha256(text)


def check_unchanged(current: str | None, expected_sha256: str | None) -> None:
    """Raises LostUpdateError when the text is not the one that the writer has seen."""
    actual = config_sha256(current)
    if expected_sha256 is not None and actual != expected_sha256:
        raise LostUpdateError(
            "Somebody else changed this config since you opened it; nothing was saved. "
            "Compare with the current text and save again.",
            current_text=current or "",
            current_sha256=actual,
        )


def write_config(model: str, text: str | None) -> None:
    """Replace the config on disk; None removes it. The caller holds the model's lock."""
    path = model_directory(model) / CONFIG_NAME
    if text is None:
        path.unlink(missing_ok=True)
    else:
        staging.write_text(path, text)


def latest_revision(model: str) -> ConfigRevision | None:
    return ConfigRevision.objects.filter(model=model).order_by("-number").first()


def current_revision(model: str) -> ConfigRevision:
    """The revision that is on disk now; one made outside Conch is noted first."""
    text = read_config(model)
    return record_revision(
        model, text, actor=None, source=RevisionSource.FOUND, reason="Found on disk"
    )


def record_revision(
    model: str, text: str | None, *, actor: Any, source: RevisionSource | str, reason: str = ""
) -> ConfigRevision:
    """The newest revision when it has this text already, else a new one."""
    try:
        with transaction.atomic():
            return _record(model, text, actor, source, reason)
    except IntegrityError:
        # Another process took the number between our look and our write; it is there now.
        with transaction.atomic():
            return _record(model, text, actor, source, reason)


def _record(
    model: str, text: str | None, actor: Any, source: RevisionSource | str, reason: str
) -> ConfigRevision:
    digest = config_sha256(text)
    newest = latest_revision(model)
    if newest and newest.sha256 == digest and newest.is_absent == (text is None):
        return newest
    last = ConfigRevision.objects.filter(model=model).aggregate(last=Max("number"))["last"] or 0
    revision = ConfigRevision.objects.create(
        model=model,
        number=last + 1,
        text=text or "",
        is_absent=text is None,
        sha256=digest,
        source=source,
        reason=reason[:255],
        actor=actor,
    )
    from console.repository.tasks import record_manifest

    start_on_commit(record_manifest, revision.pk)
    return revision


def form_text(text: str) -> str:
    """A text from a form: browsers send CRLF, files here have LF."""
    return text.replace("\r\n", "\n")
