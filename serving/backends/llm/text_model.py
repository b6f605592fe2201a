"""A model that generates text: the class `TritonPythonModel` of an engine's model.py.

The main thread of the instance process hands requests to a loop in a thread of its own, where the
engine lives; any number are answered at once. Source: spec VLLM-01, TLLM-01.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

from serving.backends.llm import calls
from serving.backends.llm.engine import Call, RequestError, Settings, TextEngine
from serving.backends.llm.figures import Figures, Stopwatch
from serving.backends.python import pb_utils

SETTINGS_FILE = "model.json"
ADAPTERS_FILE = "multi_lora.json"
_LOOK_S = 0.05
_ANSWERED_S = 1.0
_STOP_S = 20.0
_HEALTH = "ENABLE_VLLM_HEALTH_CHECK"
_REPORT = "REPORT_CUSTOM_METRICS"


class TextModel(ABC):
    """Subclassed by each engine's model.py."""

    metric_prefix: ClassVar[str]
    needs_settings: ClassVar[bool] = True
    """A version without model.json cannot be loaded."""

    @abstractmethod
    def make_engine(self, settings: Settings) -> TextEngine:
        """The engine, not started. Raises: ServingError where its package is missing."""

    @staticmethod
    def get_backend_attributes() -> dict[str, Any]:
        """The engine places itself, on one GPU or on several."""
        return {"preferred_instance_groups": [{"kind": "KIND_MODEL"}]}

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Every input but the prompt may be left out; answers come as they are made. A
        max_batch_size that the config has, as Triton's tensorrtllm models do, stays."""
        if _is_pooling(Path(pb_utils.get_model_dir())):
            config.set_model_transaction_policy({"decoupled": False})
            config.add_input(_tensor(calls.TEXT, "TYPE_STRING", 1, optional=True))
            config.add_input(_tensor(calls.TOKENS, "TYPE_INT32", -1, optional=True))
            config.add_input(_tensor("return_num_input_tokens", "TYPE_BOOL", 1, optional=True))
            config.add_output(_tensor("embedding", "TYPE_FP32", -1))
            config.add_output(_tensor("num_input_tokens", "TYPE_UINT32", 1))
            return config
        # A config that says decoupled: false, as those of tensorrtllm may, stays so.
        policy = config.as_dict().get("model_transaction_policy") or {"decoupled": True}
        config.set_model_transaction_policy({"decoupled": policy.get("decoupled", False)})
        config.add_input(_tensor(calls.TEXT, "TYPE_STRING", 1, optional=True))
        config.add_input(_tensor(calls.TOKENS, "TYPE_INT32", -1, optional=True))
        config.add_input(_tensor(calls.MESSAGES, "TYPE_STRING", 1, optional=True))
        flags = ["stream", calls.EXCLUDE, *(asks for _, asks in calls.EXTRA.values())]
        for name in flags:
            config.add_input(_tensor(name, "TYPE_BOOL", 1, optional=True))
        config.add_input(_tensor(calls.SAMPLING, "TYPE_STRING", 1, optional=True))
        config.add_output(_tensor("text_output", "TYPE_STRING", -1))
        for name, (datatype, _) in calls.EXTRA.items():
            config.add_output(_tensor(name, datatype, -1))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        directory = Path(args["model_repository"]) / args["model_version"]
        config = json.loads(args["model_config"])
        self._is_pooling = _is_pooling(directory)
        self._has_rows = config.get("max_batch_size", 0) > 0
        self._is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self._checks_health = _is_on(config, _HEALTH)
        self._numbers = itertools.count(1)
        self._figures = None
        if _is_on(config, _REPORT):
            labels = {"model": args["model_name"], "version": args["model_version"]}
            self._figures = Figures(self.metric_prefix, labels)
        settings = Settings(
            _read(directory / SETTINGS_FILE, self.needs_settings),
            directory,
            _adapters(directory),
            {
                name: value.get("string_value", "")
                for name, value in config.get("parameters", {}).items()
            },
            None if self._figures is None else self._figures.kv_cache,
        )
        self._running: dict[str, Any] = {}
        """Response sender of each call in the engine; the loop thread."""
        self._answers: set[Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()
        self._engine = self.make_engine(settings)
        try:
            self._await(self._engine.start())
        except BaseException:
            self._end_loop()
            raise
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    def execute(self, requests: list[Any]) -> list[Any] | None:
        if self._is_pooling:
            embedded = [
                asyncio.run_coroutine_threadsafe(self._embed(request), self._loop)
                for request in requests
            ]
            return [each.result() for each in embedded]
        started = []
        for request in requests:
            answer = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
            started.append(answer)
        if not self._is_decoupled:
            for answer in started:
                answer.result()
        return None

    def is_ready(self) -> bool:
        if self._checks_health:
            try:
                self._await(self._engine.check_health())
            except Exception as error:
                pb_utils.Logger.log_error(f"the engine is not healthy: {error}")
                return False
        return True

    def finalize(self) -> None:
        self._watching.cancel()
        try:
            self._await(self._drained(), _STOP_S)
        finally:
            self._end_loop()

    async def _drained(self) -> None:
        open_answers = [asyncio.wrap_future(answer) for answer in list(self._answers)]
        await asyncio.gather(*open_answers, return_exceptions=True)
        await self._engine.stop()

    async def _answer(self, request: Any) -> None:
        """One request, to its last response, whatever happens."""
        sender = request.get_response_sender()
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            await self._generate(request, sender)
        except RequestError as error:
            sender.send(_failed(str(error), pb_utils.TritonError.INVALID_ARG), final)
        except Exception as error:
            cause = error if str(error) else error.__cause__ or error  # some wrap without a word
            text = f"the engine failed: {type(cause).__name__}: {cause}"
            pb_utils.Logger.log_error(text)
            sender.send(_failed(text, pb_utils.TritonError.INTERNAL), final)

    async def _generate(self, request: Any, sender: Any) -> None:
        call = self._call_of(request)
        extra = calls.wanted_extra(request)
        prefix = str(call.prompt) if calls.wants_prompt(request, call) else ""
        watch = Stopwatch(self._figures)
        self._running[call.id] = sender
        whole = None
        try:
            async for piece in self._engine.generate(call):
                watch.saw(piece)
                whole = calls.response_of(piece, extra, prefix, as_row=self._has_rows)
                if self._is_decoupled:
                    sender.send(whole)
        finally:
            del self._running[call.id]
        watch.ended()
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if sender.is_cancelled():
            sender.send(_failed("the request was cancelled", pb_utils.TritonError.CANCELLED), final)
        else:
            sender.send(None if self._is_decoupled else whole, final)

    async def _embed(self, request: Any) -> Any:
        try:
            call = self._call_of(request)
            vector, tokens = await self._engine.embed(call)
        except RequestError as error:
            return _failed(str(error), pb_utils.TritonError.INVALID_ARG)
        extra = calls.wanted_extra(request)
        return calls.embedding_response(vector, tokens, extra, as_row=self._has_rows)

    def _call_of(self, request: Any) -> Call:
        """Raises: RequestError."""
        if self._has_rows:
            calls.refuse_rows(request)
        call = calls.call_of(request, next(self._numbers), self._engine)
        if call.is_streamed and not self._is_decoupled:
            raise RequestError(
                "the model answers once, as its config says decoupled: false, and the request is "
                "streamed: leave the stream out, or set decoupled to true"
            )
        return call

    async def _watch(self) -> None:
        """Ends calls that nobody waits for, since engines do not ask; and the process where the
        engine has died in it, so that the server starts both anew."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for identity, sender in list(self._running.items()):
                if sender.is_cancelled():
                    await self._engine.abort(identity)
            try:
                await self._engine.check_health()
            except Exception as error:
                sys.stderr.write(f"the engine died: {type(error).__name__}: {error}\n")
                await self._until_answered()
                os._exit(1)

    async def _until_answered(self) -> None:
        """The open calls fail with the engine; give their answers time to go out."""
        for _ in range(int(_ANSWERED_S / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            if not self._running:
                break

    def _await(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)


def _failed(text: str, code: int) -> Any:
    """In one line, whatever the engine drew beneath it."""
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(" ".join(text.split()), code))


def _tensor(name: str, datatype: str, dim: int, *, optional: bool = False) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": name, "data_type": datatype, "dims": [dim]}
    return tensor | {"optional": True} if optional else tensor


def _is_on(config: dict[str, Any], parameter: str) -> bool:
    value = config.get("parameters", {}).get(parameter, {}).get("string_value", "")
    return value.lower() in ("true", "yes", "1", "on")


def _is_pooling(directory: Path) -> bool:
    arguments = _read(directory / SETTINGS_FILE, False)
    return arguments.get("runner") == "pooling" or arguments.get("task") in ("embed", "embedding")


def _adapters(directory: Path) -> dict[str, str]:
    """Raises: ValueError for one that is not there: the first request for it may end an engine."""
    found = _read(directory / ADAPTERS_FILE, False)
    for name, path in found.items():
        if not isinstance(path, str) or not (directory / path).is_dir():
            raise ValueError(
                f"{directory.name}/{ADAPTERS_FILE} says that LoRA adapter '{name}' lies at "
                f"{json.dumps(path)}, and there is no such folder: write one beside the file, or a "
                "whole path"
            )
    return found


def _read(path: Path, is_needed: bool) -> dict[str, Any]:
    """The JSON object in a file of the version. Raises: ValueError naming the file."""
    shown = f"{path.parent.name}/{path.name}"
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        if is_needed:
            raise ValueError(
                f"there is no {shown}: write the arguments of the engine there, for example "
                '{"model": "facebook/opt-125m"}'
            ) from None
        return {}
    except ValueError as error:
        raise ValueError(f"{shown} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{shown} must hold a JSON object, found {type(value).__name__}")
    return value
