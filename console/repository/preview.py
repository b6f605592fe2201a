"""What the page of an upload shows about its config and its way: pure reads. Web threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from console.repository import checks, configs, selectors, staging
from console.repository.choices import UploadState
from console.repository.models import Upload


@dataclass(frozen=True, slots=True)
class Step:
    """One of Files, Checks, Publish, Load."""

    label: str
    state: str
    detail: str = ""
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class ConfigPreview:
    text: str
    saved: str
    findings: list[dict[str, Any]]
    current: str | None
    """What the repository has now; None: a new model or none."""

    @property
    def error_count(self) -> int:
        return _count(self.findings, "error")

    @property
    def warning_count(self) -> int:
        return _count(self.findings, "warning")

    @property
    def is_mended(self) -> bool:
        """The text has no errors and is another one than the saved text."""
        return self.text != self.saved and not self.error_count

    @property
    def worst(self) -> str:
        if self.error_count:
            return "error"
        return "warning" if self.warning_count else "ok"

    @property
    def summary(self) -> str:
        """`1 error · 2 warnings`"""
        parts = [
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in (
                (self.error_count, "error"),
                (self.warning_count, "warning"),
                (_count(self.findings, "note"), "note"),
            )
            if count
        ]
        return " · ".join(parts) or "No findings"


def _count(findings: list[dict[str, Any]], severity: str) -> int:
    return sum(finding["severity"] == severity for finding in findings)


def preview(upload: Upload, text: str | None = None) -> ConfigPreview:
    """The upload's config as saved, or with `text` in its place."""
    findings = upload.findings
    if text is not None and text != upload.config_text and upload.model:
        directory = staging.area(upload.id).model_directory(upload.model)
        if directory.is_dir():
            about_upload = [row for row in findings if row["code"] == "UPLOAD"]
            found = checks.check_directory(directory, config_text=text)
            findings = about_upload + checks.as_rows(found)
    return ConfigPreview(
        text=upload.config_text if text is None else text,
        saved=upload.config_text,
        findings=findings,
        current=_current(upload),
    )


def _current(upload: Upload) -> str | None:
    if not upload.model or not selectors.model_exists(upload.model):
        return None
    return configs.read_config(upload.model)


_ENDS = {
    UploadState.FAILED: "failed",
    UploadState.ERRORED: "errored",
    UploadState.DISCARDED: "discarded",
}


def steps_of(upload: Upload | None) -> list[Step]:
    """Files, Checks, Publish, Load with the state of each."""
    if upload is None:
        files = Step("Files", "pending", is_current=True)
        return [files, *_later("Checks", "Publish", "Load")]
    if upload.state == UploadState.STAGED:
        return [
            Step("Files", "running", "arriving", is_current=True),
            *_later("Checks", "Publish", "Load"),
        ]
    files = Step("Files", "done")
    if upload.state == UploadState.CHECKING:
        return [files, Step("Checks", "running", is_current=True), *_later("Publish", "Load")]
    if upload.state in _ENDS:
        state = _ENDS[UploadState(upload.state)]
        return [files, Step("Checks", state), *_later("Publish", "Load")]
    if upload.state == UploadState.CHECKED:
        if upload.error_count:
            return [files, Step("Checks", "failed", is_current=True), *_later("Publish", "Load")]
        publish = Step("Publish", "pending", is_current=True)
        return [files, Step("Checks", "done"), publish, *_later("Load")]
    return [files, Step("Checks", "done"), Step("Publish", "done"), _load_step(upload)]


def _later(*labels: str) -> list[Step]:
    return [Step(label, "pending") for label in labels]


def _load_step(upload: Upload) -> Step:
    newest = upload.deployments.order_by("-id").first()
    if newest is None:
        return Step("Load", "pending", "not asked for")
    return Step("Load", newest.state, f"deployment {newest.pk}")
