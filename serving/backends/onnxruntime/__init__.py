"""The ONNX Runtime backend: ONNX models on CPUs and GPUs, with the accelerators of ONNX Runtime."""

from __future__ import annotations
