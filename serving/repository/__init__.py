"""Model repositories on disk: layout, version policies, and the lifecycle of what is loaded."""

from __future__ import annotations
