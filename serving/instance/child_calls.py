"""What the code in an instance process may ask of its worker: other models, and small questions.

`ChildCalls` is the `ChildServices` of a child. Any thread may call; the answers are brought by
whichever thread leads the link.
"""

from __future__ import annotations

import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from serving.backends.child_services import MetricChange
from serving.errors import InternalError, InvalidArgumentError
from serving.instance import wire
from serving.instance.child_link import ChildLink
from serving.instance.codec import error_from, request_header, response_from
from serving.instance.shared_tensors import TensorPacker
from serving.request import InferenceRequest
from serving.response import InferenceResponse

_decode_results = msgspec.msgpack.Decoder(wire.Responses).decode
_decode_asked = msgspec.msgpack.Decoder(wire.AskResult).decode
_NOT_ENCODABLE = (ValueError, TypeError, OverflowError)

running_numbers: contextvars.ContextVar[Sequence[int]] = contextvars.ContextVar(
    "running_numbers", default=()
)
"""Numbers of the requests on whose behalf the current code runs; threads of a model have none."""


class _Origin(NamedTuple):
    """On whose behalf a call is, and whose trace it joins, by their numbers."""

    callers: list[int]
    traced: int = -1


class ChildCall:
    """One call of another model: its responses as they come."""

    def __init__(self, link: ChildLink, number: int, request: InferenceRequest) -> None:
        self.request = request
        self.on_news: Callable[[], None] | None = None
        """Called by the leading thread when a response has come."""
        self._link = link
        self._number = number
        self._responses: deque[InferenceResponse] = deque()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """The final response has come; it may not have been taken yet."""
        return self._is_over

    def take(self) -> InferenceResponse | None:
        """The next response that is here, or None."""
        return self._responses.popleft() if self._responses else None

    def wait(self) -> InferenceResponse:
        """The next response. Raises: ServingError when none will come."""
        self._link.wait_for(lambda: self._responses)
        if not self._responses:
            raise InternalError("the server has gone, and the call of another model with it")
        return self._responses.popleft()

    def cancel(self) -> None:
        if not self._is_over:
            self._link.send(wire.Kind.CALL_CANCEL, wire.Cancel([self._number]))

    def put(self, response: InferenceResponse) -> None:
        self._responses.append(response)
        self._is_over = self._is_over or response.is_final
        if self.on_news is not None:
            self.on_news()


class ChildCalls:
    """`number_of` tells the number on the wire of a request that is being executed."""

    def __init__(
        self, link: ChildLink, number_of: Callable[[InferenceRequest], int | None]
    ) -> None:
        self._link = link
        self._number_of = number_of
        self._numbers = itertools.count()
        self._calls: dict[int, ChildCall] = {}
        self._answers: dict[int, wire.AskResult | None] = {}
        link.handlers[wire.Kind.CALL_RESULT] = self._on_results
        link.handlers[wire.Kind.ASK_RESULT] = self._on_asked

    def call(
        self,
        request: InferenceRequest,
        *,
        is_decoupled: bool,
        caller: InferenceRequest | None = None,
        on_news: Callable[[], None] | None = None,
    ) -> ChildCall:
        number = next(self._numbers)
        call = self._calls[number] = ChildCall(self._link, number, request)
        if on_news is not None:
            call.on_news = on_news
            self._link.keep_receiving()
        origin = _Origin(list(running_numbers.get()))
        own = None if caller is None else self._number_of(caller)
        if own is not None:
            origin = _Origin([own], own)
        try:
            self._send(number, request, is_decoupled, origin)
        except _NOT_ENCODABLE as error:
            del self._calls[number]
            raise InvalidArgumentError(
                f"the request to model '{request.model_name}' cannot be sent: {error}"
            ) from error
        return call

    def later(self, work: Callable[[], None]) -> None:
        self._link.later(work)

    def poll(self) -> None:
        self._link.poll()

    def load_model(self, name: str, config: str, files: Mapping[str, bytes]) -> None:
        self._ask(wire.Ask(next(self._numbers), "load", name, config, files=dict(files)))

    def unload_model(self, name: str, unload_dependents: bool) -> None:
        self._ask(wire.Ask(next(self._numbers), "unload", name, flag=int(unload_dependents)))

    def is_model_ready(self, name: str, version: int) -> bool:
        return bool(self._ask(wire.Ask(next(self._numbers), "ready", name, flag=version)))

    def declare_family(self, name: str, description: str, kind: int) -> None:
        self._ask(wire.Ask(next(self._numbers), "family", name, description, kind))

    def new_metric(self, family: str, labels: Mapping[str, str], bounds: Sequence[float]) -> int:
        number = next(self._numbers)
        asked = wire.Ask(number, "metric", family, pairs=dict(labels), bounds=list(bounds))
        self._ask(asked)
        return number

    def metric_value(self, metric: int) -> float:
        return self._ask(wire.Ask(next(self._numbers), "value", "", flag=metric))

    def send_metrics(self, changes: Sequence[MetricChange], gone: Sequence[int]) -> None:
        updates = [
            wire.MetricUpdate(item.metric, item.added, item.value, item.counts) for item in changes
        ]
        self._link.send(wire.Kind.METRICS, wire.Metrics(updates, list(gone)))

    def _ask(self, asked: wire.Ask) -> float:
        number = asked.number
        self._answers[number] = None
        try:
            self._link.send(wire.Kind.ASK, asked)
            self._link.wait_for(lambda: self._answers[number])
        except _NOT_ENCODABLE as error:
            raise InvalidArgumentError(f"'{asked.name}' cannot be sent: {error}") from error
        finally:
            answer = self._answers.pop(number)
        if answer is None:
            raise InternalError("the server has gone")
        if answer.error is not None:
            raise error_from(answer.error)
        return answer.value

    def _send(
        self, number: int, request: InferenceRequest, is_decoupled: bool, origin: _Origin
    ) -> None:
        with self._link.lock:
            packer = TensorPacker(self._link.pool)
            header = request_header(number, request, packer)
            wire.check(header)
            descriptors = packer.finish()
            message = wire.Call(
                request.model_name,
                request.model_version,
                is_decoupled,
                header,
                origin.callers,
                self._link.take_released(),
                origin.traced,
            )
            self._link.send_packed(wire.Kind.CALL, message, packer, descriptors)

    def _on_results(self, frame: wire.Frame) -> None:
        message = _decode_results(frame.header)
        if message.released:
            self._link.release(message.released)
        unpacker = self._link.unpacker(frame)
        for header in message.responses:
            call = self._calls.get(header.number)
            if call is None:
                continue
            request = call.request
            response = response_from(header, unpacker, request, request.model_version)
            if header.is_final:
                del self._calls[header.number]
            call.put(response)

    def _on_asked(self, frame: wire.Frame) -> None:
        answer = _decode_asked(frame.header)
        if answer.number in self._answers:
            self._answers[answer.number] = answer
