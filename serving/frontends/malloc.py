"""glibc's allocator, told to keep large buffers instead of returning them to the kernel.

Otherwise each 600 KB body is mapped, faulted in and unmapped again, which costs more than serving
it. Process-wide, once, before the first large allocation; nothing happens on other C libraries.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_LARGE = 256 * 1024 * 1024
_TOP_PAD = 16 * 1024 * 1024


@cache
def tune_malloc() -> bool:
    """True when the allocator took the settings. A MALLOC_* environment has the last word."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, _LARGE), (_M_TOP_PAD, _TOP_PAD))
    return all(mallopt(name, value) == 1 for name, value in settings)
