"""Opens the fsspec file system of a URL; the one place that knows s3fs, gcsfs and adlfs by name.

They are extras and imported on first use. Their own retries and caches are switched off: the store
above retries, with a deadline for each answer. Blocking; loading threads.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from serving.errors import InvalidArgumentError, UnsupportedError
from serving.repository.cloud.url import CloudUrl

FileSystem = Any
"""An fsspec AbstractFileSystem; fsspec has no types."""

_EXTRAS = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "as": ("adlfs", "azure")}
_PLAIN = {"use_listings_cache": False, "skip_instance_cache": True}


def open_filesystem(url: CloudUrl, known: dict[str, str], timeout_s: float) -> FileSystem:
    """`known` is what `Credentials.of` said.

    Raises: UnsupportedError when the package is missing, InvalidArgumentError for credentials that
    cannot even be read.
    """
    _without_probe()
    module = _import(url)
    opener: Callable[..., FileSystem] = {"s3": _open_s3, "gs": _open_gs, "as": _open_azure}[
        url.scheme
    ]
    return opener(module, url, known, timeout_s)


def _import(url: CloudUrl) -> Any:
    package, extra = _EXTRAS[url.scheme]
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UnsupportedError(
            f"model repository '{url}' needs the package {package} ({error}): "
            f"pip install 'conch[{extra}]'"
        ) from error


def _open_s3(module: Any, url: CloudUrl, known: dict[str, str], timeout_s: float) -> FileSystem:
    client = {"region_name": known["region"]} if known.get("region") else {}
    config: dict[str, Any] = {
        "connect_timeout": timeout_s,
        "read_timeout": timeout_s,
        "retries": {"total_max_attempts": 1},
    }
    if url.endpoint:
        config["s3"] = {"addressing_style": "path"}
    filesystem = module.S3FileSystem(
        endpoint_url=url.endpoint or None,
        client_kwargs=client,
        config_kwargs=config,
        anon=known.get("anon") == "true",
        **{name: known[name] for name in ("key", "secret", "token", "profile") if name in known},
        **_PLAIN,
    )
    filesystem.retries = 1
    return filesystem


def _open_gs(module: Any, url: CloudUrl, known: dict[str, str], timeout_s: float) -> FileSystem:
    token: str | None = known.get("token")
    if token and not os.path.isfile(token):
        raise InvalidArgumentError(
            f"model repository '{url}': the key file '{token}' does not exist; correct the "
            "credential file, or GOOGLE_APPLICATION_CREDENTIALS"
        )
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        token = token or "anon"
    return module.GCSFileSystem(
        token=token, access="read_only", requests_timeout=timeout_s, project="conch", **_PLAIN
    )


def _open_azure(module: Any, url: CloudUrl, known: dict[str, str], timeout_s: float) -> FileSystem:
    options: dict[str, Any] = {"account_name": known.get("account_name") or url.account}
    kind = known.get("auth_type", "")
    if known.get("connection_string"):
        options["connection_string"] = known["connection_string"]
    elif known.get("account_key"):
        options["account_key"] = known["account_key"]
    elif kind:
        options["credential"] = _azure_identity(url, kind, known.get("client_id"))
    else:
        options["anon"] = True
    seconds = max(1, int(timeout_s))
    return module.AzureBlobFileSystem(
        connection_timeout=seconds, read_timeout=seconds, **options, **_PLAIN
    )


def _azure_identity(url: CloudUrl, kind: str, client_id: str | None) -> Any:
    identity = importlib.import_module("azure.identity.aio")
    if kind == "managed_identity":
        return identity.ManagedIdentityCredential(client_id=client_id)
    if kind == "default":
        return identity.DefaultAzureCredential()
    raise InvalidArgumentError(
        f"model repository '{url}': AZURE_STORAGE_AUTH_TYPE is '{kind}'; write managed_identity "
        "or default"
    )


def _without_probe() -> None:
    """gcsfs would ask each bucket for its kind over gRPC, a minute long where nothing answers."""
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
