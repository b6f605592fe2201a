"""Measurements of the serving core. Run as `python -m benchmarks.<name>`; see `make bench`."""

from __future__ import annotations
