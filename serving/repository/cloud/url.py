"""URLs of cloud repositories: what `s3://`, `gs://` and `as://` mean. Pure functions, any thread.

The forms are tritonserver's: an S3-compatible store is named by host and port in front of the
bucket, plain HTTP unless `https://` is written out. Source: spec REP-100..102.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from serving.errors import InvalidArgumentError

SCHEMES = ("s3", "gs", "as")
FORMS = {
    "s3": "s3://bucket/path, s3://host:port/bucket/path or s3://https://host:port/bucket/path",
    "gs": "gs://bucket/path",
    "as": "as://account/container/path",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ENDPOINT = re.compile(
    r"(?P<protocol>https?://)?(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])"
    r"(?P<port>:[0-9]{1,5})?(?:/(?P<rest>.*))?"
)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]{1,221}")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_AZURE_HOST = ".blob.core.windows.net"


@dataclass(frozen=True, slots=True)
class CloudUrl:
    """Where a repository is, or a model in it. `str()` is what people wrote."""

    text: str
    """Without a trailing slash."""
    scheme: str
    bucket: str
    """Azure calls it a container."""
    prefix: str = ""
    """No slash at either end; empty for the whole bucket."""
    endpoint: str = ""
    """S3-compatible stores: http(s)://host[:port]."""
    account: str = ""
    """Azure only."""

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        """bucket/prefix, the path within the file system."""
        return f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket

    def child(self, name: str) -> CloudUrl:
        prefix = f"{self.prefix}/{name}" if self.prefix else name
        return replace(self, text=f"{self.text}/{name}", prefix=prefix)


def is_url(text: str) -> bool:
    """Is this a URL, of whatever kind, rather than the path of a directory?"""
    return _SCHEME.match(text) is not None


def parse(text: str) -> CloudUrl:
    """Raises InvalidArgumentError naming the forms there are."""
    found = _SCHEME.match(text)
    scheme = found.group(1).lower() if found else ""
    if found is None or scheme not in SCHEMES:
        raise InvalidArgumentError(
            f"model repository '{text}' has a scheme that is not known: write "
            f"{FORMS['s3']}; {FORMS['gs']}; {FORMS['as']}; or the path of a directory"
        )
    rest = text[found.end() :].rstrip("/")
    url = CloudUrl(f"{scheme}://{rest}", scheme, "")
    if scheme == "s3":
        return _s3(url, rest)
    if scheme == "gs":
        return _located(url, rest)
    account, _, rest = rest.partition("/")
    account = account.removesuffix(_AZURE_HOST)
    if not _ACCOUNT.fullmatch(account):
        raise _wrong(url, f"'{account}' is not the name of a storage account")
    return _located(replace(url, account=account), rest)


def split_list(text: str) -> list[str]:
    """The items of a list separated like a search path, of which some may be URLs."""
    if os.pathsep != ":":
        return [item for item in text.split(os.pathsep) if item]
    # A colon inside a URL stands before // or before a port.
    items = re.split(r":(?!//|(?<=[A-Za-z0-9\]]:)[0-9]{1,5}/)", text)
    return [item for item in items if item]


def _s3(url: CloudUrl, rest: str) -> CloudUrl:
    found = _ENDPOINT.fullmatch(rest)
    if found is None or not (found["protocol"] or found["port"]):
        return _located(url, rest)
    protocol = found["protocol"] or "http://"
    endpoint = f"{protocol}{found['host']}{found['port'] or ''}"
    return _located(replace(url, endpoint=endpoint), found["rest"] or "")


def _located(url: CloudUrl, rest: str) -> CloudUrl:
    bucket, _, prefix = rest.partition("/")
    kind = "container" if url.scheme == "as" else "bucket"
    if not bucket:
        raise _wrong(url, f"it names no {kind}")
    if not _BUCKET.fullmatch(bucket):
        raise _wrong(url, f"'{bucket}' is not the name of a {kind}")
    parts = prefix.split("/") if prefix else []
    if any(part in ("", ".", "..") for part in parts) or "\0" in prefix:
        raise _wrong(url, "its path has an empty part, '.' or '..'")
    return replace(url, bucket=bucket, prefix=prefix)


def _wrong(url: CloudUrl, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"model repository '{url}' cannot be used: {why}; write {FORMS[url.scheme]}"
    )
