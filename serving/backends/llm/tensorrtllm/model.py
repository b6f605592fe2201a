"""TensorRT-LLM's public Python API (`tensorrt_llm.LLM`) as the engine of a model.

Runs in an instance process; the only file that imports tensorrt_llm. It needs a GPU, so it has been
tested against an engine that keeps to the same interface only. Source: spec TLLM-01.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from serving.backends.llm.chat import tokens_of_chat
from serving.backends.llm.engine import Call, Choice, Piece, RequestError, Settings, TextEngine
from serving.backends.llm.text_model import TextModel
from serving.backends.runtimes import require

_INSTALL = (
    "pip install tensorrt-llm (NVIDIA's package index has it), best into an environment of its own "
    "that EXECUTION_ENV_PATH names"
)
# Parameters of Triton's tensorrtllm backend, and the argument of the API that each one is.
_ARGUMENTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "gpt_model_path": ("model", str),
    "engine_dir": ("model", str),
    "tokenizer_dir": ("tokenizer", str),
    "max_beam_width": ("max_beam_width", int),
}
_KV_CACHE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "kv_cache_free_gpu_mem_fraction": ("free_gpu_memory_fraction", float),
    "max_tokens_in_paged_kv_cache": ("max_tokens", int),
    "enable_kv_cache_reuse": ("enable_block_reuse", lambda text: text.lower() in ("true", "1")),
}
_BATCHING, _IN_FLIGHT = "gpt_model_type", ("inflight_fused_batching", "inflight_batching")
# Names that callers may use, beside the API's own.
_RENAMED = {"bad_words": "bad"}


class TensorRtLlmEngine:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = require("tensorrt_llm", backend="tensorrtllm", install=_INSTALL)
        fields = dataclasses.fields(self._api.SamplingParams)
        self._fields = frozenset(item.name for item in fields if item.init and item.name[0] != "_")
        self.sampling_names = self._fields | frozenset(_RENAMED)
        self._llm: Any = None
        self._running: dict[str, Any] = {}
        self._adapters = {}
        if settings.adapters:
            executor = require("tensorrt_llm.executor", backend="tensorrtllm", install=_INSTALL)
            self._adapters = {
                name: executor.LoRARequest(name, number, str(settings.directory / path))
                for number, (name, path) in enumerate(settings.adapters.items(), 1)
            }

    async def start(self) -> None:
        # It blocks until the weights are on the GPU.
        self._llm = await asyncio.to_thread(self._open)

    def _open(self) -> Any:
        arguments = _from_parameters(self._settings.parameters) | dict(self._settings.arguments)
        if "model" not in arguments:
            raise ValueError(
                'model.json names no "model", and the config has no parameter gpt_model_path: one '
                "of them must say where the checkpoint or the engine lies"
            )
        beside = self._settings.directory / str(arguments["model"])
        if beside.is_dir():
            arguments["model"] = str(beside)
        cache = arguments.get("kv_cache_config")
        if isinstance(cache, Mapping):
            llmapi = require("tensorrt_llm.llmapi", backend="tensorrtllm", install=_INSTALL)
            arguments["kv_cache_config"] = llmapi.KvCacheConfig(**cache)
        return self._api.LLM(**arguments)

    async def generate(self, call: Call) -> AsyncIterator[Piece]:
        sampling = self._sampling(call)
        adapter = None
        if call.adapter:
            if call.adapter not in self._adapters:
                known = ", ".join(self._adapters) or "none: list them in multi_lora.json"
                raise RequestError(f"there is no LoRA adapter '{call.adapter}'; there are {known}")
            adapter = self._adapters[call.adapter]
        try:
            result = self._llm.generate_async(
                call.prompt, sampling, lora_request=adapter, streaming=call.is_streamed
            )
        except (ValueError, TypeError) as error:
            raise RequestError(f"TensorRT-LLM refuses the request: {error}") from error
        self._running[call.id] = result
        try:
            if call.is_streamed:
                async for output in result:
                    yield _piece(output, is_part=True)
            else:
                yield _piece(await result.aresult(), is_part=False)
        finally:
            del self._running[call.id]

    def chat_tokens(self, messages: list[dict[str, Any]]) -> list[int] | None:
        # Its tokenizers are Hugging Face's, some of them wrapped once more.
        tokenizer = self._llm.tokenizer
        return tokens_of_chat(getattr(tokenizer, "tokenizer", tokenizer), messages)

    async def embed(self, call: Call) -> tuple[list[float], int]:
        raise RequestError("TensorRT-LLM's API makes no embeddings: use the vllm backend for them")

    async def abort(self, call_id: str) -> None:
        result = self._running.get(call_id)
        if result is not None:
            result.abort()

    async def check_health(self) -> None:
        check = getattr(self._llm, "_check_health", None)  # not in every release
        if check is not None and not check():
            raise RuntimeError("its executor has ended")

    async def stop(self) -> None:
        if self._llm is not None:
            await asyncio.to_thread(self._llm.shutdown)

    def _sampling(self, call: Call) -> Any:
        given = {_RENAMED.get(name, name): value for name, value in call.sampling.items()}
        unknown = sorted(set(given) - self._fields)
        if unknown:
            raise RequestError(
                f"TensorRT-LLM has no sampling parameter {', '.join(map(repr, unknown))}; it has "
                + ", ".join(sorted(self.sampling_names))
            )
        try:
            return self._api.SamplingParams(**given)
        except (ValueError, TypeError) as error:
            raise RequestError(f"sampling parameters: {error}") from error


def _from_parameters(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Raises: ValueError naming the parameter."""
    batching = parameters.get(_BATCHING, "")
    if batching and not batching.startswith("${") and batching not in _IN_FLIGHT:
        raise ValueError(
            f"parameter '{_BATCHING}' is '{batching}': TensorRT-LLM's API batches in flight, "
            f"write {_IN_FLIGHT[0]}"
        )
    arguments: dict[str, Any] = {}
    cache: dict[str, Any] = {}
    for name, text in parameters.items():
        known = _ARGUMENTS.get(name) or _KV_CACHE.get(name)
        if known is None or not text or text.startswith("${"):
            continue
        argument, convert = known
        try:
            value = convert(text)
        except ValueError as error:
            raise ValueError(f"parameter '{name}' is '{text}': {error}") from error
        (arguments if name in _ARGUMENTS else cache)[argument] = value
    if cache:
        arguments["kv_cache_config"] = cache
    return arguments


def _piece(output: Any, *, is_part: bool) -> Piece:
    choices = [
        Choice(
            choice.text_diff if is_part else choice.text,
            len(choice.token_ids_diff if is_part else choice.token_ids),
            choice.finish_reason,
            choice.cumulative_logprob,
            _logprobs(choice.logprobs_diff if is_part else choice.logprobs),
        )
        for choice in output.outputs
    ]
    return Piece(choices, len(output.prompt_token_ids or ()))


def _logprobs(positions: Any) -> Any:
    if not positions:
        return None
    return [
        {
            str(token): {"logprob": entry.logprob, "rank": entry.rank}
            for token, entry in position.items()
        }
        for position in positions
    ]


class TritonPythonModel(TextModel):
    metric_prefix = "trtllm_"
    needs_settings = False  # parameters of the config may say all

    def make_engine(self, settings: Settings) -> TextEngine:
        return TensorRtLlmEngine(settings)
