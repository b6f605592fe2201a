"""The worker's side of what an instance process asks for: calls of other models (BLS), models to
load, metrics. One desk for each life of a process. Loop thread only.

A call that can never be answered, because every instance that could do it waits for the caller
itself, is answered at once with an error instead of a dead-lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from serving.errors import (
    BackendError,
    ErrorCode,
    InvalidArgumentError,
    ServingError,
    UnavailableError,
    UnsupportedError,
    error_from_code,
)
from serving.instance import wire
from serving.instance.codec import error_header, request_from
from serving.instance.dead_locks import stuck_at
from serving.instance.shared_tensors import TensorUnpacker
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelCalls, ModelServices, ServedModel

logger = logging.getLogger(__name__)

_decode_call = msgspec.msgpack.Decoder(wire.Call).decode
_decode_cancel = msgspec.msgpack.Decoder(wire.Cancel).decode
_decode_ask = msgspec.msgpack.Decoder(wire.Ask).decode
_decode_metrics = msgspec.msgpack.Decoder(wire.Metrics).decode
_tasks: set[asyncio.Task[None]] = set()
"""The loop keeps weak references to tasks only."""


@dataclass(slots=True, eq=False)
class OpenCall:
    number: int
    request: InferenceRequest
    callers: set[int]
    """Those on whose behalf it is and that have not been cancelled."""
    model: ServedModel | None = None
    is_starting: bool = True
    """The called model has not taken it yet."""


class Caller(Hashable, Protocol):
    """The host of the process that calls."""

    name: str

    def request_of(self, number: int) -> InferenceRequest | None:
        """What it executes under this number on the wire; None when that is over."""


class CallDesk:
    def __init__(
        self,
        caller: Caller,
        model_name: str,
        services: ModelServices,
        *,
        send: Callable[[wire.Kind, wire.Message], None],
        send_response: Callable[[int, InferenceResponse], None],
        release: Callable[[list[int]], None],
    ) -> None:
        """`release` takes segments back that the process no longer needs."""
        self._caller = caller
        self._model_name = model_name
        self._services = services
        self._send = send
        self._send_response = send_response
        self._release = release
        self._open: dict[int, OpenCall] = {}
        self._is_closed = False

    @property
    def open_calls(self) -> Collection[OpenCall]:
        return self._open.values()

    def handle(self, frame: wire.Frame, unpacker: TensorUnpacker) -> None:
        if frame.kind == wire.Kind.CALL:
            self._on_call(_decode_call(frame.header), unpacker)
        elif frame.kind == wire.Kind.CALL_CANCEL:
            for number in _decode_cancel(frame.header).numbers:
                if (call := self._open.get(number)) is not None:
                    call.request.cancel()
        elif frame.kind == wire.Kind.ASK:
            self._on_ask(_decode_ask(frame.header))
        elif frame.kind == wire.Kind.METRICS:
            self._on_metrics(_decode_metrics(frame.header))

    def caller_cancelled(self, number: int) -> None:
        """A call goes when all on whose behalf it is have gone."""
        for call in list(self._open.values()):
            if number in call.callers:
                call.callers.discard(number)
                if not call.callers:
                    call.request.cancel()

    def close(self) -> None:
        """The process has ended: nobody waits for its calls any more."""
        self._is_closed = True
        calls, self._open = list(self._open.values()), {}
        for call in calls:
            call.request.cancel()

    def _on_call(self, message: wire.Call, unpacker: TensorUnpacker) -> None:
        self._release(message.released)
        request = request_from(message.request, unpacker, message.model_name, message.model_version)
        call = OpenCall(message.request.number, request, set(message.callers))
        request.on_response = partial(self._on_response, call)
        self._open[call.number] = call
        try:
            self._inherit(request, message)
            call.model = self._called(request, message)
            call.model.infer(request)
            call.is_starting = False
            if call.number in self._open and (stuck := stuck_at(call)):
                raise UnavailableError(self._dead_lock(message.model_name, stuck))
        except ServingError as error:
            request.on_response = None
            request.cancel()
            self._on_response(call, request.error_response(error))

    def _inherit(self, request: InferenceRequest, message: wire.Call) -> None:
        """What it has of those on whose behalf it is."""
        callers = list(map(self._caller.request_of, message.callers))
        if callers and all(caller is not None and caller.is_cancelled for caller in callers):
            request.is_cancelled = True
        traced = self._caller.request_of(message.traced)
        if traced is not None and traced.trace is not None:
            request.trace = traced.trace.child(message.model_name)

    def _called(self, request: InferenceRequest, message: wire.Call) -> ServedModel:
        if self._services.calls is None:
            raise UnavailableError("this server lends its models no other models")
        model = _taker(self._services.calls, request)
        if model.spec.is_decoupled and not message.is_decoupled:
            raise UnsupportedError(
                f"model '{model.name}' is decoupled and may give any number of responses: call it "
                "with decoupled=True and iterate over them"
            )
        return model

    def _dead_lock(self, called: str, stuck: str) -> str:
        return (
            f"model '{self._model_name}' called model '{called}', which could never answer: every "
            f"instance of '{stuck}' is busy with a request that waits for this call, or waits for "
            "resources that such a request holds; give it more instances (instance_group) or "
            "resources, or call it from outside of execute"
        )

    def _on_response(self, call: OpenCall, response: InferenceResponse) -> None:
        if self._open.get(call.number) is not call:
            return
        if response.is_final:
            del self._open[call.number]
        if response.error is not None and call.is_starting:
            response = call.request.error_response(_not_started(call, response.error))
        self._send_response(call.number, response)

    def _on_ask(self, asked: wire.Ask) -> None:
        if asked.what in ("load", "unload"):
            task = asyncio.get_running_loop().create_task(self._control(asked))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
            return
        result = wire.AskResult(asked.number)
        try:
            result.value = self._answer(asked)
        except ServingError as error:
            result.error = error_header(error)
        self._send(wire.Kind.ASK_RESULT, result)

    def _answer(self, asked: wire.Ask) -> float:
        metrics = self._services.metrics
        if asked.what == "family":
            metrics.declare(self._caller, asked.name, asked.text, asked.flag)
        elif asked.what == "metric":
            metrics.add(self._caller, asked.number, asked.name, asked.pairs, asked.bounds)
        elif asked.what == "value":
            return metrics.value(self._caller, asked.flag)
        elif asked.what == "ready" and self._services.calls is not None:
            return float(self._services.calls.is_model_ready(asked.name, asked.flag))
        else:
            raise InvalidArgumentError(f"nobody here knows about '{asked.what}'")
        return 0.0

    async def _control(self, asked: wire.Ask) -> None:
        result = wire.AskResult(asked.number)
        calls = self._services.calls
        try:
            if calls is None:
                raise UnavailableError("this server lends its models no other models")
            if asked.what == "load":
                files = {name.removeprefix("file:"): data for name, data in asked.files.items()}
                await calls.load_model(asked.name, config_override=asked.text or None, files=files)
            else:
                await calls.unload_model(asked.name, unload_dependents=bool(asked.flag))
        except ServingError as error:
            result.error = error_header(error)
        except Exception as error:  # whoever waits must hear of it, whatever it is
            logger.exception("%s of '%s' failed model=%s", asked.what, asked.name, self._model_name)
            result.error = error_header(UnavailableError(f"{type(error).__name__}: {error}"))
        if not self._is_closed:
            self._send(wire.Kind.ASK_RESULT, result)

    def _on_metrics(self, message: wire.Metrics) -> None:
        metrics = self._services.metrics
        for item in message.updates:
            metrics.update(
                self._caller, item.metric, value=item.value, added=item.added, counts=item.counts
            )
        for number in message.gone:
            metrics.drop(self._caller, number)


def _taker(calls: ModelCalls, request: InferenceRequest) -> ServedModel:
    name, version = request.model_name, request.model_version
    holder: ServedModel | None = None
    if request.correlation_id and not request.sequence_start:
        # A sequence goes on where it began, even if that model gets no new ones any more.
        holder = calls.sequence_holder(name, version, request.correlation_id)
    return holder or calls.model(name, version)


def _not_started(call: OpenCall, error: ServingError) -> ServingError:
    """What is wrong with the request itself is the calling model's fault, and no client's."""
    text = f"Model {call.request.model_name} - Error when running inference: {error.message}"
    if error.code is ErrorCode.UNAVAILABLE:
        return error_from_code(error.code, text, error.failure_reason)
    return BackendError(text)
