"""States and choices of engine builds; words and shapes of states are in `core.choices`."""

from __future__ import annotations

from django.db import models


class BuildState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    SUCCEEDED = "succeeded", "Done"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


OPEN_STATES = (BuildState.QUEUED, BuildState.RUNNING)


class Library(models.TextChoices):
    AUTOMATIC = "", "What the worker has, TensorRT first"
    TENSORRT = "tensorrt", "TensorRT"
    TENSORRT_RTX = "tensorrt_rtx", "TensorRT-RTX"


class Precision(models.TextChoices):
    MODEL = "model", "As the ONNX file says"
    FP32 = "fp32", "FP32, without TF32"
    FP16 = "fp16", "FP16 where it is faster"
    BF16 = "bf16", "BF16 where it is faster"
    INT8 = "int8", "INT8 where it is faster"
