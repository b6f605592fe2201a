"""Stands in for vLLM in tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RequestOutputKind


class SamplingParams(msgspec.Struct, omit_defaults=True, dict=True):
    n: int = 1
    temperature: float = 1.0
    max_tokens: int | None = 16
    stop: str | list[str] | None = None
    seed: int | None = None
    logprobs: int | None = None
    bad_words: list[str] | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    skip_clone: bool = False
    _eos_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise VLLMValidationError(f"temperature must be non-negative, got {self.temperature}.")


class PoolingParams(msgspec.Struct, omit_defaults=True):
    task: str | None = None


@dataclass
class AsyncEngineArgs:
    model: str
    runner: str = "auto"
    convert: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    enable_lora: bool = False
    disable_log_stats: bool = False

    def __post_init__(self) -> None:
        if self.model == "no-such-model":
            raise OSError(f"{self.model} is not a local folder and is not a valid model identifier")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"this stand-in for vLLM has no {name}")
