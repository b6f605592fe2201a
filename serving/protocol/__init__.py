"""KServe v2 and Triton's extensions as pure functions between bytes and requests."""

from __future__ import annotations
