"""A libcuda.so.1 over files, built by the C compiler, for CUDA shared memory without a GPU."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "data/fake_cuda.c"


def build(folder: Path) -> Path:
    """The library; its folder goes into LD_LIBRARY_PATH of a server. Skips without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler, to stand in for the CUDA driver")
    library = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return library


@contextlib.contextmanager
def allocation(content: bytes) -> Iterator[Path]:
    """What cudaMalloc would give: a file with a name short enough for a handle."""
    file = Path("/dev/shm", f"conch_test_{secrets.token_hex(8)}")
    file.write_bytes(content)
    yield file
    file.unlink()


def handle_of(path: Path | str) -> bytes:
    """What cudaIpcGetMemHandle would give for the memory that is this file."""
    return str(path).encode().ljust(64, b"\0")
