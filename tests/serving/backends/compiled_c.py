"""Shared libraries that tests compile out of C, once for a session each."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="there is no gcc to compile the library with")


def compile_library(source: Path | str, target: Path, *options: str) -> Path:
    """`source`: a file, or the text of one. Warnings are errors."""
    assert GCC is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, str):
        path = target.with_suffix(".c")
        path.write_text(source)
    else:
        path = source
    flags = ["-shared", "-fPIC", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([GCC, *flags, *options, str(path), "-o", str(target)], check=True)
    return target
