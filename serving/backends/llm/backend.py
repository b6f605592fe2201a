"""The vllm and tensorrtllm backends: Python-based backends that Conch ships.

Each is a folder with a model.py that runs in the model's own process, in an environment of its own
where the config names one: these engines rarely agree with other packages. Loading threads.
"""

from __future__ import annotations

from pathlib import Path

from serving.backends.python.backend import PythonBackend

_HERE = Path(__file__).resolve().parent


class VllmBackend(PythonBackend):
    """Source: spec VLLM-01."""

    def __init__(self) -> None:
        super().__init__("vllm", _HERE / "vllm")


class TensorRtLlmBackend(PythonBackend):
    """Source: spec TLLM-01."""

    def __init__(self) -> None:
        super().__init__("tensorrtllm", _HERE / "tensorrtllm")
