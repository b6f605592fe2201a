"""One pipeline of DALI, built for a device and a batch size. The only file that imports DALI.

A pipeline is used by one thread, and any error ends it for good: it is built anew then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.runtimes import require
from serving.config.wire import WireError, fields

Array = NDArray[np.generic]
Samples = Array | list[Array]
"""An array whose first axis counts the samples; a list where they differ in shape."""
_CAUSE = re.compile(r"encountered:\s*(.*?)\s*(?:Current pipeline object|$)", re.S)
_PLACE = re.compile(r"\s*C\+\+ context: \[.*?\]")
_OPERATOR = re.compile(r"operator `nvidia\.dali\.([\w.]+)`")
_MAX_CAUSE_CHARACTERS = 300
# Of the protobuf message that a serialized pipeline is, and of the operators in it.
_OPERATORS, _KIND, _INSTANCE_NAME = 5, 1, 5
_EXTERNAL_SOURCE = b"ExternalSource"


def dali() -> Any:
    return require("nvidia.dali", backend="dali", install="pip install 'conch[dali]'")


@dataclass(frozen=True, slots=True)
class Settings:
    batch_size: int
    threads: int
    device: int | None
    """Number of a GPU; None for the CPU."""


class Pipeline:
    def __init__(self, serialized: bytes, settings: Settings) -> None:
        """Raises: whatever DALI raises for what is no pipeline, or needs what there is not."""
        self._serialized = serialized
        self._settings = settings
        self._pipe: Any = None
        self._build()

    @property
    def output_count(self) -> int:
        return len(self._pipe.output_dtype())

    def has_input(self, name: str) -> bool:
        try:
            self._pipe.input_feed_count(name)
        except (KeyError, RuntimeError):
            return False
        return True

    def run(self, samples: Mapping[str, Samples]) -> list[Samples]:
        """For each output its samples, copied out of DALI's memory.

        Raises: whatever DALI raises; the pipeline has been built anew then.
        """
        try:
            for name, fed in samples.items():
                self._pipe.feed_input(name, fed)
            return [_samples(output) for output in self._pipe.run()]
        except Exception:
            self._build()
            raise

    def _build(self) -> None:
        # One run at a time: what is fed now is what comes out.
        self._pipe = dali().Pipeline.deserialize(
            serialized_pipeline=self._serialized,
            batch_size=self._settings.batch_size,
            num_threads=self._settings.threads,
            device_id=self._settings.device,
            prefetch_queue_depth=1,
            exec_async=False,
            exec_pipelined=False,
        )


def release_unused_memory() -> None:
    """Give DALI's pools back to the machine."""
    dali().backend.ReleaseUnusedMemory()


def cause_of(error: Exception) -> str:
    """Operator and reason out of DALI's report, which shows the pipeline's source as well."""
    text = str(error)
    found = _CAUSE.search(text)
    reason = _PLACE.sub("", found[1] if found else text)
    reason = " ".join(reason.split())[:_MAX_CAUSE_CHARACTERS]
    operator = _OPERATOR.search(text)
    return f"{operator[1]}: {reason}" if operator else reason


def external_sources(serialized: bytes) -> list[str]:
    """Names of what a pipeline must be fed with; those that can be found in its file."""
    names = []
    try:
        for item in fields(serialized, 0, len(serialized)):
            if item.number == _OPERATORS and item.has_length:
                told = {
                    part.number: serialized[part.value : part.end]
                    for part in fields(serialized, item.value, item.end)
                    if part.has_length
                }
                if told.get(_KIND) == _EXTERNAL_SOURCE and _INSTANCE_NAME in told:
                    names.append(told[_INSTANCE_NAME].decode("utf-8", "replace"))
    except WireError:
        return []  # DALI says better what is wrong with it
    return names


def _samples(output: Any) -> Samples:
    tensors = output.as_cpu() if hasattr(output, "as_cpu") else output
    if tensors.is_dense_tensor():
        return np.array(tensors.as_tensor())
    return [np.array(tensors.at(index)) for index in range(len(tensors))]
