"""The sample backends that Triton's own tests and tutorials name, so that those models load."""

from __future__ import annotations
