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


class LostUpdateError(AlreadyExistsError):
    """Somebody else changed the text after it was read; nothing was written."""

    def __init__(self, message: str, *, current_text: str, current_sha256: str) -> None:
        super().__init__(message)
        self.current_text = current_text
        self.current_sha256 = current_sha256


class PublishConflictError(AlreadyExistsError):
    """A version of the upload is already in the repository."""

    def __init__(self, message: str, *, next_version: int) -> None:
        super().__init__(message)
        self.next_version = next_version
