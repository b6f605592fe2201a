"""Parsing of Python sources. Any thread.

CPython 3.11 counts the depth of its syntax trees for the whole process: two threads that parse at
once may fail with a SystemError, so one waits for the other.
"""

from __future__ import annotations

import ast
import threading

_lock = threading.Lock()


def parse(source: bytes | str, filename: str = "<unknown>") -> ast.Module:
    """Raises: what `ast.parse` does."""
    with _lock:
        return ast.parse(source, filename=filename)
