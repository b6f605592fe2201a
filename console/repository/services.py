"""What the repository can do for people: the one import for views, the API and other apps.

Uploads are in `uploads`, `validation` and `publishing`; here is what joins files with deployments.
Every function writes the audit log. Raises `ServingError` subclasses with a sentence for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import transaction

from console.core import audit
from console.repository import checks, configs, publishing, selectors, staging, versions
from console.repository.arrange import CONFIG_NAME
from console.repository.choices import RevisionSource
from console.repository.configs import config_sha256, read_config
from console.repository.deploying import deployments
from console.repository.errors import RefusedError, disk_faults
from console.repository.models import ConfigRevision, TrashEntry, Upload
from console.repository.uploads import (
    change_wish,
    complete_upload,
    create_upload,
    discard_upload,
    edit_config,
    receive,
    stage_upload,
)
from console.repository.validation import validate_upload
from serving.config.policy_edit import set_version_policy as edit_version_policy

if TYPE_CHECKING:
    from console.deployments.models import Deployment

__all__ = [
    "SavedConfig",
    "change_wish",
    "complete_upload",
    "config_sha256",
    "create_upload",
    "delete_model",
    "delete_version",
    "discard_upload",
    "edit_config",
    "publish",
    "read_config",
    "receive",
    "restore_deleted",
    "save_config",
    "set_version_policy",
    "stage_upload",
    "validate_upload",
]


@dataclass(frozen=True, slots=True)
class SavedConfig:
    revision: ConfigRevision
    deployment: Deployment | None


@audit.records_refusals("publish upload", "upload")
@disk_faults()
def publish(*, actor: Any, upload: Upload, load: bool = False) -> Deployment | None:
    """Publish a checked upload, and load the model when asked to.

    Raises RefusedError, PublishConflictError.
    """
    publishing.publish_upload(actor=actor, upload=upload)
    upload.refresh_from_db()
    if not load:
        return None
    return deployments().load_model(
        actor=actor, model=upload.model, reason="Published by upload", upload=upload
    )


@audit.records_refusals("save config", "model")
@disk_faults()
def save_config(
    *,
    actor: Any,
    model: str,
    text: str,
    load: bool = False,
    expected_sha256: str | None = None,
    reason: str = "",
    source: RevisionSource = RevisionSource.EDIT,
) -> SavedConfig:
    """Write config.pbtxt when the rules find no error in it.

    `expected_sha256` is of the text that the writer saw (of the empty text where there was none).
    Raises NotFoundError, RefusedError with findings, LostUpdateError.
    """
    directory = configs.model_directory(model)
    if len(text.encode("utf-8")) > configs.MAX_CONFIG_BYTES:
        raise RefusedError(f"A config may have at most {configs.MAX_CONFIG_BYTES} bytes.")
    with configs.model_lock(model):
        before = read_config(model)
        configs.check_unchanged(before, expected_sha256)
        findings = checks.check_directory(directory, config_text=text)
        if checks.has_errors(findings):
            rows = checks.as_rows(findings)
            raise RefusedError(_first_error(rows), findings=rows)
        revision = _write_revision(actor, model, before, text, source, reason)
    deployment = None
    if load:
        deployment = deployments().load_model(
            actor=actor, model=model, reason=reason or f"Config r{revision.number} saved"
        )
    return SavedConfig(revision, deployment)


def _first_error(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    place = f"line {first['line']}: " if first["line"] else ""
    return f"The config was not saved: {place}{first['message']}"


def _write_revision(
    actor: Any, model: str, before: str | None, text: str, source: RevisionSource, reason: str
) -> ConfigRevision:
    """History first, then the file: a failed write takes the history back with it."""
    with transaction.atomic():
        old = configs.current_revision(model)
        revision = configs.record_revision(model, text, actor=actor, source=source, reason=reason)
        if before != text:
            audit.record(
                actor,
                "save config",
                model,
                {
                    "from": old.number,
                    "to": revision.number,
                    "file": CONFIG_NAME,
                    "before": old.sha256,
                    "after": revision.sha256,
                },
            )
            configs.write_config(model, text)
    return revision


def set_version_policy(
    *,
    actor: Any,
    model: str,
    policy: Mapping[str, Any],
    load: bool = False,
    expected_sha256: str | None = None,
) -> SavedConfig:
    """Change version_policy in config.pbtxt and nothing else in it.

    `policy`: {"latest": {"num_versions": 2}}, {"all": {}} or {"specific": {"versions": [1, 3]}}.
    Raises NotFoundError, RefusedError, LostUpdateError.
    """
    clean = clean_policy(policy)
    current = read_config(model)
    return save_config(
        actor=actor,
        model=model,
        text=edit_version_policy(current or "", clean),
        load=load,
        expected_sha256=expected_sha256 or config_sha256(current),
        reason=f"Version policy: {policy_words(clean)}",
        source=RevisionSource.POLICY,
    )


def clean_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy with its values checked. Raises RefusedError with fields."""
    choices = [kind for kind in ("latest", "all", "specific") if kind in policy]
    if len(choices) != 1 or len(policy) != 1:
        raise _policy_error("Write exactly one of latest, all and specific.")
    kind = choices[0]
    value = policy[kind] if policy[kind] is not None else {}
    if not isinstance(value, Mapping):
        raise _policy_error(f"'{kind}' takes an object.")
    if kind == "all":
        return {"all": {}}
    if kind == "latest":
        number = value.get("num_versions", 1)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise _policy_error("latest.num_versions must be a whole number, 1 or more.")
        return {"latest": {"num_versions": number}}
    listed = value.get("versions")
    if not isinstance(listed, list) or not listed:
        raise _policy_error("specific.versions must name at least one version.")
    if any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in listed):
        raise _policy_error("specific.versions must be whole numbers.")
    return {"specific": {"versions": sorted(set(listed))}}


def _policy_error(text: str) -> RefusedError:
    return RefusedError(text, fields={"policy": [text]})


def policy_words(policy: Mapping[str, Any]) -> str:
    """A policy as a person says it: `latest 2`."""
    if "latest" in policy:
        return f"latest {policy['latest']['num_versions']}"
    if "specific" in policy:
        return "specific " + ", ".join(str(item) for item in policy["specific"]["versions"])
    return "all"


@audit.records_refusals("delete version", "model")
@disk_faults()
def delete_version(*, actor: Any, model: str, version: int) -> TrashEntry:
    """Move a version into the trash; one that is wanted or served is refused.

    Raises NotFoundError, RefusedError.
    """
    deployments().check_idle(model)
    serving = deployments().workers_serving(model, version)
    if serving:
        raise RefusedError(
            f"Version {version} of '{model}' is served by {', '.join(serving)}. Unload it first."
        )
    return versions.delete_version_files(actor=actor, model=model, version=version)


@audit.records_refusals("delete model", "model")
@disk_faults()
def delete_model(*, actor: Any, model: str) -> TrashEntry:
    """Move a model into the trash and forget that it was wanted; a served one is refused.

    Raises NotFoundError, RefusedError.
    """
    configs.model_directory(model)
    deployments().check_idle(model)
    serving = deployments().workers_serving(model)
    if serving:
        raise RefusedError(f"'{model}' is served by {', '.join(serving)}. Unload it first.")
    entry = versions.delete_model_files(actor=actor, model=model)
    deployments().forget_model(model)
    return entry


@audit.records_refusals("restore", "entry")
@disk_faults()
def restore_deleted(*, actor: Any, entry: TrashEntry) -> None:
    """Put a deleted version or model back. Raises RefusedError, NotFoundError."""
    versions.restore(actor=actor, entry=entry)


def discard_stale_uploads() -> int:
    """Discard what nobody finished for long; returns how many."""
    stale = selectors.open_uploads().filter(updated_at__lt=staging.stale_before())
    count = 0
    for upload in stale:
        discard_upload(actor=None, upload=upload)
        count += 1
    return count
