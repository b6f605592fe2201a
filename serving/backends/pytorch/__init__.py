"""The PyTorch backend: TorchScript modules, PT2 archives, and modules written in Python."""

from __future__ import annotations
