"""Archives for tests, benign and hostile."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

CONFIG = """\
name: "ident"
backend: "identity"
max_batch_size: 4
input [ { name: "IN0" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "OUT0" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""


def zip_bytes(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_bytes(files: Mapping[str, str | bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def tar_with(member: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(member)
    return buffer.getvalue()


def write_model(
    root: Path, name: str = "ident", versions: tuple[int, ...] = (1,), config: str | None = CONFIG
) -> Path:
    """A model directory of the identity backend, which needs no model file."""
    directory = root / name
    for version in versions:
        (directory / str(version)).mkdir(parents=True, exist_ok=True)
        (directory / str(version) / "weights.bin").write_bytes(b"w%d" % version)
    if config is not None:
        (directory / "config.pbtxt").write_text(config.replace('"ident"', f'"{name}"'))
    return directory
