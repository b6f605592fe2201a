"""vLLM's asynchronous engine as the engine of a model. Runs in an instance process.

The only file that imports vllm. Source: spec VLLM-01.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from serving.backends.llm.chat import tokens_of_chat
from serving.backends.llm.engine import (
    Call,
    Choice,
    Piece,
    Prompt,
    RequestError,
    Settings,
    TextEngine,
)
from serving.backends.llm.text_model import TextModel
from serving.backends.runtimes import require

_INSTALL = (
    "pip install 'conch[vllm]', best into an environment of its own that EXECUTION_ENV_PATH names"
)
# What the server decides itself.
_NOT_FOR_CALLERS = {"output_kind", "skip_clone", "output_text_buffer_length", "detokenize"}


class VllmEngine:
    def __init__(self, settings: Settings) -> None:
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        # This process has threads, which a fork would leave behind in any state.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        self._settings = settings
        self._vllm = require("vllm", backend="vllm", install=_INSTALL)
        errors = require("vllm.exceptions", backend="vllm", install=_INSTALL)
        self._refusals = (ValueError, errors.VLLMClientError)
        """What it raises for a caller's mistake."""
        fields = self._vllm.SamplingParams.__struct_fields__
        self.sampling_names = frozenset(
            name for name in fields if name[0] != "_" and name not in _NOT_FOR_CALLERS
        )
        self._adapters = {
            name: require("vllm.lora.request", backend="vllm", install=_INSTALL).LoRARequest(
                name, number, str(settings.directory / path)
            )
            for number, (name, path) in enumerate(settings.adapters.items(), 1)
        }
        self._engine: Any = None

    async def start(self) -> None:
        arguments = dict(self._settings.arguments)
        # As the Triton backend has it: the server logs requests itself.
        for old in ("disable_log_requests", "enable_log_requests"):
            arguments.pop(old, None)
        beside = self._settings.directory / str(arguments.get("model", ""))
        if beside.is_dir() and "model" in arguments:
            arguments["model"] = str(beside)
        if self._adapters:
            arguments.setdefault("enable_lora", True)
        tell = self._settings.on_kv_cache
        arguments.setdefault("disable_log_stats", tell is None)
        made = self._vllm.AsyncEngineArgs(**arguments)
        module = require("vllm.v1.engine.async_llm", backend="vllm", install=_INSTALL)
        loggers = [] if tell is None else [_kv_cache_logger(tell)]
        self._engine = module.AsyncLLM.from_engine_args(made, stat_loggers=loggers)
        for name, adapter in self._adapters.items():
            # One that cannot be read ends the engine with the first request for it.
            try:
                await self._engine.add_lora(adapter)
            except Exception as error:
                await self.stop()
                raise ValueError(f"LoRA adapter '{name}' cannot be loaded: {error}") from error

    async def generate(self, call: Call) -> AsyncIterator[Piece]:
        kinds = require("vllm.sampling_params", backend="vllm", install=_INSTALL).RequestOutputKind
        sampling, adapter = self._sampling(call), self._adapter(call)
        sampling.output_kind = kinds.DELTA if call.is_streamed else kinds.FINAL_ONLY
        try:
            async for output in self._engine.generate(
                _prompt(call.prompt), sampling, call.id, lora_request=adapter
            ):
                yield Piece(list(map(_choice, output.outputs)), len(output.prompt_token_ids or ()))
        except self._refusals as error:
            raise RequestError(f"vLLM refuses the request: {error}") from error

    def chat_tokens(self, messages: list[dict[str, Any]]) -> list[int] | None:
        return tokens_of_chat(self._engine.get_tokenizer(), messages)

    async def embed(self, call: Call) -> tuple[list[float], int]:
        parameters, adapter = self._vllm.PoolingParams(task="embed"), self._adapter(call)
        last = None
        try:
            async for output in self._engine.encode(
                _prompt(call.prompt), parameters, call.id, lora_request=adapter
            ):
                last = output
        except self._refusals as error:
            raise RequestError(f"vLLM refuses the request: {error}") from error
        assert last is not None
        return last.outputs.data.float().tolist(), len(last.prompt_token_ids)

    async def abort(self, call_id: str) -> None:
        await self._engine.abort(call_id)

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def stop(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()

    def _sampling(self, call: Call) -> Any:
        unknown = sorted(set(call.sampling) - self.sampling_names)
        if unknown:
            raise RequestError(
                f"vLLM has no sampling parameter {', '.join(map(repr, unknown))}; it has "
                + ", ".join(sorted(self.sampling_names))
            )
        try:
            # Clients of Triton send numbers as text, too.
            return msgspec.convert(dict(call.sampling), self._vllm.SamplingParams, strict=False)
        except (*self._refusals, TypeError) as error:
            raise RequestError(f"sampling parameters: {error}") from error

    def _adapter(self, call: Call) -> Any:
        if not call.adapter:
            return None
        if call.adapter not in self._adapters:
            known = ", ".join(self._adapters) or "none: list them in multi_lora.json"
            raise RequestError(f"there is no LoRA adapter '{call.adapter}'; there are {known}")
        return self._adapters[call.adapter]


def _kv_cache_logger(tell: Callable[[float, int], None]) -> type[Any]:
    """vLLM makes one for its engine, and hands it the figures of every step."""
    loggers = require("vllm.v1.metrics.loggers", backend="vllm", install=_INSTALL)
    base: Any = loggers.StatLoggerBase

    class KvCacheLogger(base):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            self._cache = vllm_config.cache_config

        def record(self, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
            if scheduler_stats is not None:
                blocks = self._cache.num_gpu_blocks or 0
                tell(scheduler_stats.kv_cache_usage, blocks * self._cache.block_size)

        def log_engine_initialized(self) -> None:
            """The first step tells all."""

    return KvCacheLogger


def _prompt(prompt: Prompt) -> dict[str, Any]:
    return {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}


def _choice(output: Any) -> Choice:
    logprobs = output.logprobs
    if logprobs is not None:
        logprobs = [
            {
                str(token): {
                    "logprob": entry.logprob,
                    "rank": entry.rank,
                    "decoded_token": entry.decoded_token,
                }
                for token, entry in position.items()
            }
            for position in logprobs
        ]
    return Choice(
        output.text,
        len(output.token_ids),
        output.finish_reason,
        output.cumulative_logprob,
        logprobs,
    )


class TritonPythonModel(TextModel):
    metric_prefix = "vllm:"

    def make_engine(self, settings: Settings) -> TextEngine:
        return VllmEngine(settings)
