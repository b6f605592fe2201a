"""How much memory a process has for itself, from /proc. Any thread."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def private_bytes(pid: int) -> int:
    """Resident memory that is not shared with files or other processes; 0 when it has ended."""
    resident, shared = _pages(pid)
    return (resident - shared) * _PAGE


def resident_bytes(pid: int) -> int:
    """0 when it has ended."""
    return _pages(pid)[0] * _PAGE


def _pages(pid: int) -> tuple[int, int]:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]), int(fields[2])
    except (OSError, IndexError):
        return 0, 0
