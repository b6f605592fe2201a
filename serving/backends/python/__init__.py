"""The Python backend: runs a user's TritonPythonModel, always inside a child process."""

from __future__ import annotations
