"""Stands in for TensorRT-LLM in tests: LLM, SamplingParams and the results of generate_async."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from echo_words import Tokenizer, pause_s, words_of


@dataclass
class SamplingParams:
    max_tokens: int = 32
    temperature: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    bad: str | list[str] | None = None
    logprobs: int | None = None
    _internal: int = 0

    def __post_init__(self) -> None:
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={self.top_k}")


class RequestOutput:
    """Awaited whole by `aresult`, or iterated; grows while it is generated."""

    def __init__(self, prompt: str | list[int], sampling: SamplingParams) -> None:
        self._words = words_of(prompt)
        self._limit = min(sampling.max_tokens, len(self._words))
        self._is_aborted = False
        self._said = 0
        self.prompt_token_ids = prompt if isinstance(prompt, list) else prompt.split()
        self.outputs: list[SimpleNamespace] = []

    def abort(self) -> None:
        self._is_aborted = True

    async def aresult(self) -> RequestOutput:
        async for _ in self:
            pass
        return self

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._said >= self._limit or self._is_aborted:
            raise StopAsyncIteration
        await asyncio.sleep(pause_s())
        self._said += 1
        is_last = self._said == self._limit
        reason = None
        if is_last:
            reason = "stop" if self._limit == len(self._words) else "length"
        said = self._words[: self._said]
        self.outputs = [
            SimpleNamespace(
                text="".join(f"{word} " for word in said),
                text_diff=f"{said[-1]} ",
                token_ids=list(range(self._said)),
                token_ids_diff=[self._said],
                finish_reason=reason,
                cumulative_logprob=None,
                logprobs=[],
                logprobs_diff=[],
            )
        ]
        return self


class LLM:
    def __init__(self, model: str, **arguments: Any) -> None:
        if arguments.get("max_beam_width") == 99:
            raise RuntimeError("max_beam_width 99 is more than the engine was built for")
        self._is_running = True
        self.tokenizer = SimpleNamespace(tokenizer=Tokenizer(None))

    def generate_async(
        self,
        inputs: str | list[int],
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        streaming: bool = False,
    ) -> RequestOutput:
        if not inputs:
            raise ValueError("the prompt is empty")
        return RequestOutput(inputs, sampling_params or SamplingParams())

    def _check_health(self) -> bool:
        return self._is_running

    def shutdown(self) -> None:
        self._is_running = False
