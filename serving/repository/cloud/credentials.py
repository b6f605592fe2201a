"""Who asks: options of the file systems out of the environment and of Triton's credential file.

The file (`TRITON_CLOUD_CREDENTIAL_PATH`, `--cloud-credential`) is read afresh at every question, so
that rotated keys are found. Blocking, small; loading threads. Source: spec REP-100..103.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.errors import InvalidArgumentError
from serving.repository.cloud.url import CloudUrl

_KEYS: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "key_id": "key",
        "secret_key": "secret",
        "session_token": "token",
        "profile": "profile",
        "region": "region",
    },
    "as": {
        "account_str": "account_name",
        "account_key": "account_key",
        "auth_type": "auth_type",
        "client_id": "client_id",
    },
}
"""Key of the file -> our word for it."""

HINTS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key file",
    "as": "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or AZURE_STORAGE_AUTH_TYPE",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    path: Path | None = None
    """The credential file; None: the environment alone."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def of(self, url: CloudUrl) -> dict[str, str]:
        """What is known for `url`, in our words; empty: the library looks for itself.

        The entry with the longest prefix of the URL counts; without one, the environment does.
        Raises: InvalidArgumentError for a file that cannot be read or understood.
        """
        section = self._section(url.scheme)
        matching = [prefix for prefix in section if url.text.startswith(prefix.rstrip("/"))]
        if matching:
            return self._entry(url.scheme, max(matching, key=len), section)
        return _azure(self.environment, url) if url.scheme == "as" else _plain(self, url)

    def hint(self, url: CloudUrl) -> str:
        """How to mend a refusal."""
        if self.path is None:
            return f"{HINTS[url.scheme]}, or name a credential file with --cloud-credential"
        return f"correct the entry for it in the section '{url.scheme}' of '{self.path}'"

    def _section(self, scheme: str) -> dict[str, Any]:
        if self.path is None:
            return {}
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidArgumentError(
                f"cloud credential file '{self.path}' cannot be read: {error.strerror}"
            ) from error
        except ValueError as error:
            raise self._wrong(f"is not JSON: {_place(error)}") from None
        section = content.get(scheme, {}) if isinstance(content, dict) else None
        if not isinstance(section, dict):
            raise self._wrong(
                'must be a JSON object of sections "s3", "gs" and "as", each an object from URL '
                "prefix to credential"
            )
        return section

    def _entry(self, scheme: str, prefix: str, section: Mapping[str, Any]) -> dict[str, str]:
        entry = section[prefix]
        place = f'"{scheme}" / "{prefix}"'
        if scheme == "gs":
            if not isinstance(entry, str):
                raise self._wrong(f"{place} must be the path of a key file, a text")
            return {"token": entry} if entry else {}
        known = _KEYS[scheme]
        if not isinstance(entry, dict):
            raise self._wrong(f"{place} must be an object with keys {', '.join(known)}")
        for key, value in entry.items():
            if key not in known:
                raise self._wrong(f"{place} has a key '{key}', known are {', '.join(known)}")
            if not isinstance(value, str):
                raise self._wrong(f"{place}: '{key}' must be a text")
        return {known[key]: value for key, value in entry.items() if value}

    def _wrong(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"cloud credential file '{self.path}' {what}")


def _plain(credentials: Credentials, url: CloudUrl) -> dict[str, str]:
    """botocore reads the AWS variables itself, in the order that AWS documents."""
    token = credentials.environment.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    return {"token": token} if url.scheme == "gs" and token else {}


def _azure(environment: Mapping[str, str], url: CloudUrl) -> dict[str, str]:
    names = {
        "AZURE_STORAGE_CONNECTION_STRING": "connection_string",
        "AZURE_STORAGE_AUTH_TYPE": "auth_type",
        "AZURE_STORAGE_CLIENT_ID": "client_id",
    }
    known = {word: environment[name] for name, word in names.items() if environment.get(name)}
    # A key opens one account only: with that of another one, anonymous access is worth a try.
    account = environment.get("AZURE_STORAGE_ACCOUNT", "")
    if environment.get("AZURE_STORAGE_KEY") and account in ("", url.account):
        known["account_key"] = environment["AZURE_STORAGE_KEY"]
    return known


def _place(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno} column {error.colno}: {error.msg}"
    return str(error)
