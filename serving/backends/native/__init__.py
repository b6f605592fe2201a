"""Backends that are shared libraries, written in C or C++ against `conch_backend.h` in this folder.

Nothing here is imported before a model names such a backend. Source: spec BE-001..009.
"""

from __future__ import annotations

from pathlib import Path

INCLUDE_DIRECTORY = Path(__file__).parent
"""Where conch_backend.h is, for the compiler's option -I."""
