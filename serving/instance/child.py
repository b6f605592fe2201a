"""Main program of an instance process: hosts one model instance of any backend.

Started as `python -m serving.instance.child SOCKET_DESCRIPTOR PARENT_PID NAME`; everything else
comes over the socket, the name is for people. The main thread receives, loads and executes; a
model's own threads may answer requests and log. The process dies with its parent.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import socket
import sys
import threading
import time
import traceback
from pathlib import Path

import msgspec

from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
)
from serving.child_program import die_with_parent
from serving.config.decode import InstanceKind, decode
from serving.config.protobuf import pb
from serving.errors import BackendError, InternalError, ServingError
from serving.instance import wire
from serving.instance.channel import BlockingChannel
from serving.instance.codec import error_header, request_from, response_header, wire_text
from serving.instance.shared_tensors import (
    PeerSegments,
    SegmentPool,
    TensorPacker,
    TensorUnpacker,
)
from serving.request import InferenceRequest
from serving.response import InferenceResponse

MAX_ERROR_CHARACTERS = 8192
_NOT_ENCODABLE = (ValueError, TypeError, OverflowError)

_decode_load = msgspec.msgpack.Decoder(wire.Load).decode
_decode_execute = msgspec.msgpack.Decoder(wire.Execute).decode
_decode_cancel = msgspec.msgpack.Decoder(wire.Cancel).decode
_decode_segments = msgspec.msgpack.Decoder(wire.Segments).decode


def describe_exception(error: BaseException) -> str:
    """The exception with the last frames of its traceback, bounded."""
    text = "".join(traceback.format_exception(error)).rstrip()
    if len(text) <= MAX_ERROR_CHARACTERS:
        return text
    return "... " + text[-MAX_ERROR_CHARACTERS:]


class WireLogHandler(logging.Handler):
    """Sends the core's own log records to the worker; the model's stay on its standard error."""

    def __init__(self, channel: BlockingChannel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = wire.Log(record.levelno, wire_text(self.format(record)))
            self._channel.send(wire.pack(wire.Kind.LOG, message))
        except OSError:
            pass  # the worker is gone, and this process with it


class InstanceServer:
    """Serves one instance over the channel."""

    def __init__(self, channel: BlockingChannel, context: ModelContext) -> None:
        self._channel = channel
        self._context = context
        self._pool = SegmentPool()
        self._peer = PeerSegments(writable=True)
        self._lock = threading.Lock()
        """Guards the pool, the numbers and the sending of responses, from a model's threads."""
        self._numbers: dict[InferenceRequest, int] = {}
        self._collected: list[tuple[int, InferenceResponse]] | None = None
        """Responses that wait for the end of execute; None outside of it and for decoupled."""
        self._model: LoadedModel | None = None
        self._instance: ModelInstance | None = None

    def load(self, backend: Backend, placement: Placement) -> None:
        self._model = backend.load(self._context)
        self._instance = self._model.create_instance(placement)

    def serve(self) -> None:
        """Until CLOSE or the end of the worker."""
        while True:
            frame = self._channel.receive()
            if frame is None:
                return
            if frame.descriptors:
                self._peer.add(frame.descriptors)
            if frame.kind == wire.Kind.EXECUTE:
                self._execute(frame)
            elif frame.kind == wire.Kind.CANCEL:
                self._cancel(_decode_cancel(frame.header).numbers)
            elif frame.kind == wire.Kind.SEGMENTS:
                news = _decode_segments(frame.header)
                self._peer.forget(news.forgotten)
                with self._lock:
                    self._pool.release(news.released)
            elif frame.kind == wire.Kind.CLOSE:
                self._close()
                return

    def _execute(self, frame: wire.Frame) -> None:
        message = _decode_execute(frame.header)
        if message.released:
            with self._lock:
                self._pool.release(message.released)
        rescheduled: list[InferenceRequest] = []
        requests = self._unpack(message, frame, rescheduled)
        del frame
        done = wire.Responses([], [], message.batch)
        times = ExecutionTimes(input_end_ns=time.monotonic_ns())
        self._collected = None if self._context.spec.is_decoupled else []
        try:
            self._run(requests, times)
        except ServingError as error:
            done.error = error_header(error)
        except Exception as error:  # a backend must never take its process down by raising
            text = f"model '{self._context.spec.name}' failed to execute: "
            done.error = error_header(BackendError(text + describe_exception(error)))
        done.input_end_ns = times.input_end_ns
        done.output_start_ns = times.output_start_ns or time.monotonic_ns()
        collected, self._collected = self._collected or [], None
        with self._lock:
            # After its final response a request is over, whatever else the model asks for.
            left = [self._numbers.pop(request, None) for request in dict.fromkeys(rescheduled)]
        done.rescheduled = [number for number in left if number is not None]
        if done.error is not None or not self._context.spec.is_decoupled:
            # The worker fails those that execute left without an answer.
            for request in requests:
                self._numbers.pop(request, None)
        del requests
        self._send(collected, done)

    def _run(self, requests: list[InferenceRequest], times: ExecutionTimes) -> None:
        assert self._instance is not None
        self._instance.execute(requests, times)

    def _unpack(
        self, message: wire.Execute, frame: wire.Frame, rescheduled: list[InferenceRequest]
    ) -> list[InferenceRequest]:
        unpacker = TensorUnpacker(frame, self._peer)
        requests = []
        for header in message.requests:
            request = request_from(header, unpacker, self._context.spec.name, self._context.version)
            request.responder = self._respond
            request.rescheduler = rescheduled.append
            self._numbers[request] = header.number
            requests.append(request)
        return requests

    def _respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Any thread of the model."""
        with self._lock:
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
        with self._lock:
            packer = TensorPacker(self._pool)
            for number, response in answers:
                message.responses.append(self._header(number, response, packer))
            descriptors = packer.finish()
            answers.clear()
            message.released = self._peer.take_released()
            try:
                frame = wire.pack(wire.Kind.RESPONSES, message, packer.blobs, len(descriptors))
            except _NOT_ENCODABLE:
                message.responses = [self._sendable(header) for header in message.responses]
                frame = wire.pack(wire.Kind.RESPONSES, message, packer.blobs, len(descriptors))
            self._channel.send(frame, descriptors)
            if self._pool.forgotten:
                forgotten, self._pool.forgotten = self._pool.forgotten, []
                news = wire.Segments([], forgotten)
                self._channel.send(wire.pack(wire.Kind.SEGMENT_NEWS, news))

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
            f"model '{self._context.spec.name}' gave a response that cannot be sent: "
            f"{describe_exception(error)}"
        )
        problem = error_header(BackendError(text))
        return wire.ResponseHeader(number, [], {}, problem, is_final, False)

    def _cancel(self, numbers: list[int]) -> None:
        wanted = set(numbers)
        for request, number in list(self._numbers.items()):
            if number in wanted:
                request.is_cancelled = True

    def _close(self) -> None:
        error = ""
        try:
            if self._instance is not None:
                self._instance.close()
            if self._model is not None:
                self._model.unload()
        except ServingError as problem:
            error = problem.message
        except Exception as problem:  # reported, never in the way of the unload
            error = describe_exception(problem)
        self._channel.send(wire.pack(wire.Kind.CLOSED, wire.Closed(wire_text(error))))


def _context_of(load: wire.Load) -> ModelContext:
    config = pb.ModelConfig.FromString(load.config)
    return ModelContext(
        decode(config), config, load.version, Path(load.model_directory), load.backend_config
    )


def _backend(name: str) -> Backend:
    """By name, or as `module:Class`, which costs no import of the registry."""
    module, _, class_name = name.partition(":")
    if class_name:
        made: Backend = getattr(importlib.import_module(module), class_name)()
        return made
    registry = importlib.import_module("serving.backends.registry")
    found: Backend = registry.BackendRegistry().get(name)
    return found


def _load(channel: BlockingChannel, load: wire.Load) -> InstanceServer:
    server = InstanceServer(channel, _context_of(load))
    backend = _backend(load.backend)
    kind = InstanceKind(load.instance_kind)
    server.load(backend, Placement(load.instance_name, kind, load.device_id))
    return server


def main() -> int:
    descriptor, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    os.set_inheritable(descriptor, False)
    channel = BlockingChannel(socket.socket(fileno=descriptor))
    core_logger = logging.getLogger("serving")
    core_logger.addHandler(WireLogHandler(channel))
    core_logger.setLevel(logging.DEBUG)
    core_logger.propagate = False
    frame = channel.receive()
    if frame is None or frame.kind != wire.Kind.LOAD:
        return 1
    try:
        server = _load(channel, _decode_load(frame.header))
    except ServingError as error:
        failure = error
    except Exception as error:  # whatever model code raises while it loads
        failure = InternalError(f"failed to load: {describe_exception(error)}")
    else:
        channel.send(wire.pack(wire.Kind.LOADED, wire.Loaded(os.getpid())))
        gc.collect()
        gc.freeze()
        server.serve()
        return 0
    channel.send(wire.pack(wire.Kind.LOAD_FAILED, wire.LoadFailed(error_header(failure))))
    return 1


if __name__ == "__main__":
    sys.exit(main())
