"""Backends: one file or package for each runtime, found through the registry."""

from __future__ import annotations
