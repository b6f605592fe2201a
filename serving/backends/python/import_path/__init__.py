"""A folder for `sys.path`: programs that a model starts find `triton_python_backend_utils` here."""

from __future__ import annotations
