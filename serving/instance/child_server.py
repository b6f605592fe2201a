"""Serves one instance in its process: executes batches, collects and sends what the model answers.

The main thread executes; a model's own threads may answer requests, and whichever thread leads the
link notes what comes.
"""

from __future__ import annotations

import time
import traceback
from collections import deque

import msgspec

from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    instance_of,
    loaded_by,
)
from serving.errors import BackendError, InstanceLostError, ServingError
from serving.instance import wire
from serving.instance.child_calls import running_numbers
from serving.instance.child_link import ChildLink
from serving.instance.codec import error_header, request_from, response_header, wire_text
from serving.instance.shared_tensors import TensorPacker
from serving.request import InferenceRequest
from serving.response import InferenceResponse

MAX_ERROR_CHARACTERS = 8192
_NOT_ENCODABLE = (ValueError, TypeError, OverflowError)

_decode_execute = msgspec.msgpack.Decoder(wire.Execute).decode
_decode_cancel = msgspec.msgpack.Decoder(wire.Cancel).decode
_decode_segments = msgspec.msgpack.Decoder(wire.Segments).decode
_decode_check = msgspec.msgpack.Decoder(wire.CheckReady).decode


def describe_exception(error: BaseException) -> str:
    """The exception with the last frames of its traceback, bounded."""
    text = "".join(traceback.format_exception(error)).rstrip()
    if len(text) <= MAX_ERROR_CHARACTERS:
        return text
    return "... " + text[-MAX_ERROR_CHARACTERS:]


class InstanceServer:
    """Serves one instance over the link."""

    def __init__(self, link: ChildLink, context: ModelContext) -> None:
        self._link = link
        self.context = context
        self._model_name, self._version = context.spec.name, context.version
        self._is_decoupled = context.spec.is_decoupled
        self._numbers: dict[InferenceRequest, int] = {}
        """Requests that wait for their final response; guarded by the link's lock."""
        self._next = 0
        """Requests from this number on have not been looked at."""
        self._cancelled_early: set[int] = set()
        """Of those; guarded by the link's lock."""
        self._collected: list[tuple[int, InferenceResponse]] | None = None
        """Responses that wait for the end of execute; None outside of it and for decoupled."""
        self._work: deque[wire.Frame] = deque()
        """What the main thread is to do next."""
        self._model: LoadedModel | None = None
        self._instance: ModelInstance | None = None
        self.lost = ""
        """Why the instance cannot execute again, and the process is to end."""
        for kind in (wire.Kind.EXECUTE, wire.Kind.CLOSE, wire.Kind.CHECK_READY):
            link.handlers[kind] = self._work.append
        link.handlers[wire.Kind.CANCEL] = self._cancel
        link.handlers[wire.Kind.SEGMENTS] = self._take_news

    def load(self, backend: Backend, placement: Placement) -> None:
        self._model = loaded_by(backend, self.context)
        self._instance = instance_of(self._model, placement)

    @property
    def has_ready_hook(self) -> bool:
        return self._instance is not None and self._instance.has_ready_hook

    def number_of(self, request: InferenceRequest) -> int | None:
        return self._numbers.get(request)

    def serve(self) -> None:
        """Until CLOSE, the end of the worker, or of what the instance runs on."""
        work = self._work
        while self._link.wait_for(work.__len__):
            frame = work.popleft()
            if frame.kind == wire.Kind.EXECUTE:
                self._execute(frame)
                if self.lost:
                    return
            elif frame.kind == wire.Kind.CHECK_READY:
                self._check_ready(_decode_check(frame.header).number)
            else:
                self._close()
                return

    def _execute(self, frame: wire.Frame) -> None:
        message = _decode_execute(frame.header)
        if message.released:
            self._link.release(message.released)
        requests = self._unpack(message, frame)
        del frame
        answer = wire.Responses([], [])
        collected: list[tuple[int, InferenceResponse]] = []
        for number, size in enumerate(message.sizes, message.batch):
            batch = requests[:size]
            del requests[:size]
            answer.done.append(self._run(number, batch, collected))
            del batch  # its inputs may be released with this answer
        self._send(collected, answer)

    def _run(
        self,
        number: int,
        requests: list[InferenceRequest],
        collected: list[tuple[int, InferenceResponse]],
    ) -> wire.BatchDone:
        """Execute one batch; its answers go to `collected`."""
        assert self._instance is not None
        now_ns = time.monotonic_ns()
        done = wire.BatchDone(number, now_ns)
        times = ExecutionTimes(input_end_ns=now_ns)
        rescheduled: list[InferenceRequest] = []
        numbers = []
        for request in requests:
            request.rescheduler = rescheduled.append
            numbers.append(self._numbers[request])
        running_numbers.set(numbers)
        self._collected = None if self._is_decoupled else collected
        # Kept until its requests have failed: its traceback holds their response senders.
        failure: Exception | None = None
        try:
            self._instance.execute(requests, times)
        except ServingError as error:
            failure = error
            done.error = error_header(error)
            if isinstance(error, InstanceLostError):
                self.lost = error.message
        except Exception as error:  # a backend must never take its process down by raising
            failure = error
            text = f"model '{self.context.spec.name}' failed to execute: "
            done.error = error_header(BackendError(text + describe_exception(error)))
        running_numbers.set(())
        done.end_ns = time.monotonic_ns()
        done.input_end_ns = times.input_end_ns
        done.output_start_ns = times.output_start_ns or done.end_ns
        with self._link.lock:
            self._collected = None
            # After its final response a request is over, whatever else the model asks for.
            if rescheduled:
                left = [self._numbers.pop(request, None) for request in dict.fromkeys(rescheduled)]
                done.rescheduled = [number for number in left if number is not None]
            if done.error is not None or not self._is_decoupled:
                # The worker fails those that execute left without an answer.
                for request in requests:
                    self._numbers.pop(request, None)
        del failure
        return done

    def _unpack(self, message: wire.Execute, frame: wire.Frame) -> list[InferenceRequest]:
        unpacker = self._link.unpacker(frame)
        requests = []
        for header in message.requests:
            request = request_from(header, unpacker, self._model_name, self._version)
            request.responder = self._respond
            requests.append(request)
        with self._link.lock:
            for request, header in zip(requests, message.requests, strict=True):
                self._numbers[request] = header.number
                self._next = header.number + 1
                if header.number in self._cancelled_early:
                    self._cancelled_early.discard(header.number)
                    request.is_cancelled = True
        return requests

    def _respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Any thread of the model."""
        with self._link.lock:
            number = self._numbers.get(request)
            if number is None:
                raise RuntimeError(f"request '{request.id}' has had its final response")
            if response.is_final:
                del self._numbers[request]
                request.responder = None
            collected = self._collected
            if collected is not None:
                collected.append((number, response))
                return
        self._send([(number, response)], wire.Responses([], []))

    def _send(self, answers: list[tuple[int, InferenceResponse]], message: wire.Responses) -> None:
        link = self._link
        with link.lock:
            if self._instance is not None:
                self._instance.before_send()
            packer = TensorPacker(link.pool)
            for number, response in answers:
                message.responses.append(self._header(number, response, packer))
            descriptors = packer.finish() if packer.shared else []
            answers.clear()
            message.released = link.take_released()
            try:
                link.send_packed(wire.Kind.RESPONSES, message, packer, descriptors)
            except _NOT_ENCODABLE:
                message.responses = [self._sendable(header) for header in message.responses]
                link.send_packed(wire.Kind.RESPONSES, message, packer, descriptors)
        if link.late:
            link.run_late()

    def _header(
        self, number: int, response: InferenceResponse, packer: TensorPacker
    ) -> wire.ResponseHeader:
        """An error in the place of a response that cannot be put on the wire."""
        try:
            return response_header(number, response, packer)
        except Exception as error:  # elements of an object array run code of the model
            return self._unsendable(number, response.is_final, error)

    def _sendable(self, header: wire.ResponseHeader) -> wire.ResponseHeader:
        """The header, or an error in its place when no message can carry its text."""
        try:
            wire.check(header)
        except _NOT_ENCODABLE as error:
            return self._unsendable(header.number, header.is_final, error)
        return header

    def _unsendable(self, number: int, is_final: bool, error: Exception) -> wire.ResponseHeader:
        text = (
            f"model '{self.context.spec.name}' gave a response that cannot be sent: "
            f"{describe_exception(error)}"
        )
        problem = error_header(BackendError(text))
        return wire.ResponseHeader(number, [], {}, problem, is_final, False)

    def _cancel(self, frame: wire.Frame) -> None:
        wanted = set(_decode_cancel(frame.header).numbers)
        with self._link.lock:
            for request, number in self._numbers.items():
                if number in wanted:
                    request.is_cancelled = True
            # Some wait behind what is executed.
            self._cancelled_early.update(number for number in wanted if number >= self._next)

    def _take_news(self, frame: wire.Frame) -> None:
        news = _decode_segments(frame.header)
        self._link.forget(news.forgotten)
        self._link.release_without_answer(news.released, must_trim=news.must_trim)

    def _check_ready(self, number: int) -> None:
        answer = wire.Ready(number, False, "")
        try:
            assert self._instance is not None
            answer.is_ready = self._instance.is_ready()
        except ServingError as error:
            answer.error = wire_text(error.message)
        except Exception as error:  # the hook is the model's
            answer.error = wire_text(describe_exception(error))
        self._link.send(wire.Kind.READY, answer)

    def _close(self) -> None:
        error = ""
        try:
            if self._instance is not None:
                self._instance.close()
                self._instance.before_send()
            if self._model is not None:
                self._model.unload()
        except ServingError as problem:
            error = problem.message
        except Exception as problem:  # reported, never in the way of the unload
            error = describe_exception(problem)
        self._link.send(wire.Kind.CLOSED, wire.Closed(wire_text(error)))
