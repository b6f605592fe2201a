"""An AsyncLLM that echoes; the prompt `die` ends it, as a crash of its process would."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from echo_words import Tokenizer, pause_s, words_of

from vllm import AsyncEngineArgs, PoolingParams, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class EngineDeadError(Exception):
    pass


class EngineGenerateError(Exception):
    pass


class AsyncLLM:
    def __init__(self, args: AsyncEngineArgs, stat_loggers: list[Any]) -> None:
        self._args = args
        cache = SimpleNamespace(num_gpu_blocks=10, block_size=16)
        self._loggers = [make(SimpleNamespace(cache_config=cache), 0) for make in stat_loggers]
        self._aborted: set[str] = set()
        self._is_dead = False

    @classmethod
    def from_engine_args(
        cls, engine_args: AsyncEngineArgs, stat_loggers: list[Any] | None = None
    ) -> AsyncLLM:
        asyncio.get_running_loop()  # vLLM makes its tasks here
        return cls(engine_args, stat_loggers or [])

    async def generate(
        self,
        prompt: dict[str, Any],
        sampling_params: SamplingParams,
        request_id: str,
        *,
        lora_request: Any = None,
    ) -> AsyncGenerator[SimpleNamespace, None]:
        given = prompt.get("prompt", prompt.get("prompt_token_ids"))
        if not given:
            raise VLLMValidationError("The decoder prompt cannot be empty")
        if given == "die":
            self._is_dead = True
        if self._is_dead:
            raise EngineDeadError("EngineCore encountered an issue.")
        if (sampling_params.seed or 0) >= 2**63:
            raise EngineGenerateError from OverflowError("Python int too large to convert")
        words = words_of(given)
        if lora_request is not None:
            words = [f"{lora_request.lora_name}:{word}" for word in words]
        count = min(len(words), sampling_params.max_tokens or len(words))
        reason = "stop" if count == len(words) else "length"
        kind = sampling_params.output_kind
        for position in range(count):
            await asyncio.sleep(pause_s())
            for logger in self._loggers:
                logger.record(SimpleNamespace(kv_cache_usage=0.25), None, engine_idx=0)
            if request_id in self._aborted:
                yield self._output(given, [], sampling_params, "abort")
                return
            is_last = position == count - 1
            if kind is RequestOutputKind.DELTA:
                part = words[position : position + 1]
                yield self._output(given, part, sampling_params, reason if is_last else None)
        if kind is RequestOutputKind.FINAL_ONLY:
            yield self._output(given, words[:count], sampling_params, reason)

    @staticmethod
    def _output(
        prompt: Any, words: list[str], sampling: SamplingParams, reason: str | None
    ) -> SimpleNamespace:
        logprobs = None
        if sampling.logprobs is not None:
            logprobs = [{7: Logprob(-0.5, 1, word)} for word in words]
        choice = SimpleNamespace(
            text="".join(f"{word} " for word in words),
            token_ids=list(range(len(words))),
            finish_reason=reason,
            cumulative_logprob=None if logprobs is None else -0.5 * len(words),
            logprobs=logprobs,
        )
        tokens = prompt if isinstance(prompt, list) else prompt.split()
        return SimpleNamespace(outputs=[choice] * sampling.n, prompt_token_ids=tokens)

    async def encode(
        self,
        prompt: dict[str, Any],
        pooling_params: PoolingParams,
        request_id: str,
        lora_request: Any = None,
    ) -> AsyncGenerator[SimpleNamespace, None]:
        assert pooling_params.task == "embed"
        text = prompt["prompt"]

        class Vector:
            def float(self) -> np.ndarray:
                return np.array([len(text), text.count("a")], np.float32)

        yield SimpleNamespace(outputs=SimpleNamespace(data=Vector()), prompt_token_ids=text.split())

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(os.environ.get("ECHO_CHAT_TEMPLATE"))

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        if not (Path(lora_request.lora_path) / "adapter_config.json").is_file():
            raise FileNotFoundError(f"no adapter_config.json in {lora_request.lora_name}")
        return True

    async def abort(self, request_id: str) -> None:
        self._aborted.add(request_id)

    async def check_health(self) -> None:
        if self._is_dead:
            raise EngineDeadError("EngineCore encountered an issue.")

    def shutdown(self, timeout: float | None = None) -> None:
        self._is_dead = True
