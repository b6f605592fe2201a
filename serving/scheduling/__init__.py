"""Schedulers: they own a queue, decide on batches and hand them to instances. Loop thread only."""

from __future__ import annotations
