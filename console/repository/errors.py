"""Expected refusals of the repository's services; the REST layer and pages show their text."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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


class StorageError(RefusedError):
    """The disk of the repository does not take what should be written."""

    api_status = 507
    api_code = "storage"


_DISK_FAULTS = {
    errno.ENOSPC: "it is full: delete old versions, discard open uploads, or enlarge it",
    errno.EDQUOT: "its quota is used up",
    errno.EFBIG: "its file system or a limit of the process allows no file of this size",
    errno.EROFS: "it is mounted read-only",
    errno.EACCES: "the console may not write there: mend the rights of the folder",
    errno.EPERM: "the console may not write there: mend the rights of the folder",
    errno.EIO: "it reports an input/output error",
}


@contextmanager
def disk_faults() -> Iterator[None]:
    """Names a disk that does not take a write (StorageError); a decorator as well."""
    try:
        yield
    except OSError as error:
        words = _DISK_FAULTS.get(error.errno or 0)
        if words is None:
            raise
        raise StorageError(
            f"The disk of the model repository takes no write ({words}); nothing was changed."
        ) from error


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
