"""What a start says of files for TLS that are of no use (GRPC-043)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from benchmarks.certificates import write_certificate
from serving.frontends.grpc_server import _tls
from serving.options import GrpcOptions


def test_a_file_that_is_missing_or_none_of_tls_is_named(tmp_path: Path) -> None:
    write_certificate(tmp_path, "server")
    good, key = tmp_path / "server.crt", tmp_path / "server.key"
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("no certificate")

    _tls(GrpcOptions(use_ssl=True, server_cert=good, server_key=key))
    with pytest.raises(OSError, match="No such file") as told:
        _tls(GrpcOptions(use_ssl=True, server_cert=missing, server_key=key))
    assert str(missing) in (told.value.strerror or "")
    sealed = tmp_path / "sealed.key"
    how = serialization.BestAvailableEncryption(b"secret")
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    sealed.write_bytes(
        loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    )
    for wrong, named in (
        (GrpcOptions(use_ssl=True, server_cert=text, server_key=key), text),
        (GrpcOptions(use_ssl=True, server_cert=good, server_key=text), text),
        (GrpcOptions(use_ssl=True, server_cert=good, server_key=key, root_cert=text), text),
        (GrpcOptions(use_ssl=True, server_cert=good, server_key=sealed), sealed),
    ):
        with pytest.raises(OSError, match="no usable PEM certificate") as told:
            _tls(wrong)
        assert str(named) in str(told.value)
