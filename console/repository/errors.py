"""Expected refusals of the repository's services; the REST layer and pages show their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.errors import AlreadyExistsError, InvalidArgumentError


class RefusedError(InvalidArgumentError):
    """A request that cannot be done as it is; `fields` says what to change."""

    def __init__(
        self,
        message: str,
        *,
        fields: Mapping[str, Sequence[str]] | None = None,
        findings: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.fields = {name: list(texts) for name, texts in (fields or {}).items()}
        self.findings = [dict(finding) for finding in findings]

    @property
    def api_detail(self) -> dict[str, Any]:
        return {"findings": self.findings} if self.findings else {}


class LostUpdateError(AlreadyExistsError):
    """Somebody else changed the text after it was read; nothing was written."""

    api_status = 409
    api_code = "lost_update"

    def __init__(self, message: str, *, current_text: str, current_sha256: str) -> None:
        super().__init__(message)
        self.current_text = current_text
        self.current_sha256 = current_sha256

    @property
    def api_detail(self) -> dict[str, Any]:
        return {"current": {"text": self.current_text, "sha256": self.current_sha256}}


class PublishConflictError(AlreadyExistsError):
    """A version of the upload is already in the repository."""

    api_status = 409
    api_code = "version_exists"

    def __init__(self, message: str, *, next_version: int) -> None:
        super().__init__(message)
        self.next_version = next_version

    @property
    def api_detail(self) -> dict[str, Any]:
        return {"next_version": self.next_version}
