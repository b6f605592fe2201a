"""One life of an instance process as the loop sees it: process, channel, shared segments.

Created for each start and thrown away at the end of the process. Loop thread only; the watching
thread's report is brought to the loop here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec

from serving import host_policies
from serving.backends.base import ModelContext, Placement
from serving.backends.registry import BUILT_IN
from serving.config.decode import InstanceKind
from serving.errors import InternalError, ModelLoadError, ServingError
from serving.instance import wire
from serving.instance.call_desk import CallDesk, Caller
from serving.instance.channel import LoopChannel
from serving.instance.child_process import ChildProcess, ExitReport, ProcessPlan, spawn
from serving.instance.codec import error_from, request_header, response_header
from serving.instance.segment_keeper import SegmentKeeper
from serving.instance.shared_tensors import (
    PeerSegments,
    SegmentPool,
    TensorPacker,
    TensorUnpacker,
)
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices

logger = logging.getLogger(__name__)
model_logger = logging.getLogger("serving.models")

_PYTHON = BUILT_IN["python"]
_RESPONSES = int(wire.Kind.RESPONSES)
_READY_LIMIT_S = 5.0
_EXIT_GRACE_S = 1.0
"""Between the end of the socket and the end of the process."""

_decode_responses = msgspec.msgpack.Decoder(wire.Responses).decode
_decode_failed = msgspec.msgpack.Decoder(wire.LoadFailed).decode
_decode_closed = msgspec.msgpack.Decoder(wire.Closed).decode
_decode_log = msgspec.msgpack.Decoder(wire.Log).decode
_decode_loaded = msgspec.msgpack.Decoder(wire.Loaded).decode
_decode_ready = msgspec.msgpack.Decoder(wire.Ready).decode
_FOR_THE_DESK = frozenset((wire.Kind.CALL, wire.Kind.CALL_CANCEL, wire.Kind.ASK, wire.Kind.METRICS))
_decode_segments = msgspec.msgpack.Decoder(wire.Segments).decode


def load_message(context: ModelContext, backend_name: str, placement: Placement) -> wire.Load:
    return wire.Load(
        BUILT_IN.get(backend_name, backend_name) if context.runtime_directory is None else _PYTHON,
        context.config.SerializeToString(),
        context.version,
        str(context.model_directory),
        dict(context.backend_config),
        placement.instance_name,
        placement.kind.value,
        placement.device_id,
        "" if context.runtime_directory is None else str(context.runtime_directory),
    )


def plan_of(context: ModelContext, placement: Placement) -> ProcessPlan:
    """A GPU instance sees its own device only, which is number 0 to it."""
    variables = {}
    if placement.kind is InstanceKind.GPU:
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the driver counts, and the config
        variables["CUDA_VISIBLE_DEVICES"] = str(placement.device_id)
    name = placement.instance_name
    return ProcessPlan(name, context.spec.name, context.interpreter, variables)


class InstanceLink:
    """`on_responses` gets each RESPONSES message; `on_end` the reason of an end after `start`."""

    def __init__(
        self,
        plan: ProcessPlan,
        *,
        caller: Caller,
        services: ModelServices,
        on_responses: Callable[[wire.Responses, TensorUnpacker], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._name = plan.name
        self._model = plan.model
        self._on_responses = on_responses
        self._on_end = on_end
        self._pool = SegmentPool()
        self._peer = PeerSegments(writable=False)
        self._process: ChildProcess | None = None
        self._channel: LoopChannel | None = None
        self._loaded: asyncio.Future[ServingError | None] = self._loop.create_future()
        self._ended: asyncio.Future[ExitReport] = self._loop.create_future()
        self._is_started = False
        self._fault = ""
        self.has_ready_hook = False
        """The model says itself whether it is ready; known after `start`."""
        self.said_ready = True
        """Its last answer."""
        self._keeper = SegmentKeeper(self._loop, self._pool, self._peer, self._send_news)
        self._ready_number = 0
        self._ready_answer: asyncio.Future[wire.Ready] | None = None
        self.desk = CallDesk(
            caller,
            plan.model,
            services,
            send=self._send,
            send_response=self._send_call_response,
            release=self._pool.release,
        )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(
        self, load: wire.Load, timeout_s: float, *, cpu_cores: Collection[int] = ()
    ) -> None:
        """Start the process and load the model. On failure the process is gone when it raises."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await self._spawn(theirs)
            # Before it has more threads than one: they inherit it.
            host_policies.bind(cpu_cores, self._process.pid)
        except OSError as error:
            ours.close()
            raise InternalError(
                f"instance '{self._name}': its process could not be started: {error}"
            ) from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = LoopChannel(self._loop, ours, self._on_frame, self._on_channel_error)
        try:
            self._channel.send(wire.pack(wire.Kind.LOAD, load))
            await self._wait_loaded(timeout_s)
        except BaseException:
            self.kill()
            await asyncio.shield(self._ended)
            if self._channel is not None:  # the process had ended before there was a channel
                self._channel.close()
            raise
        self._is_started = True

    async def _spawn(self, sock: socket.socket) -> ChildProcess:
        spawning = asyncio.wrap_future(spawn(self._plan, sock, self._report_exit), loop=self._loop)
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            # The socket must not be closed, and its number used again, before the fork.
            (await spawning).kill()
            await asyncio.shield(self._ended)
            raise

    async def _wait_loaded(self, timeout_s: float) -> None:
        await asyncio.wait(
            (self._loaded, self._ended), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        error = self._loaded.result() if self._loaded.done() else None
        if error is not None:
            raise error
        if self._ended.done():  # maybe right after it had loaded the model
            raise ModelLoadError(
                f"instance '{self._name}': its process {self._ended.result()} while it loaded the "
                "model"
            )
        if not self._loaded.done():
            raise ModelLoadError(
                f"instance '{self._name}' did not finish loading within {timeout_s:g} s; see "
                "what its initialize waits for, or raise the load timeout"
            )

    def execute(
        self, batch: int, sizes: list[int], requests: Sequence[tuple[int, InferenceRequest]]
    ) -> None:
        """Batches of these sizes, one after the other; `batch` numbers the first.

        Raises ServingError when a request cannot be put on the wire; nothing is sent then."""
        assert self._channel is not None
        packer = TensorPacker(self._pool)
        try:
            headers = []
            for number, item in requests:
                headers.append(request_header(number, item, packer))
            descriptors = None
            if packer.shared:
                for header in headers:
                    # Before `finish`: what it takes from the pool must reach the child.
                    wire.check(header)
                descriptors = packer.finish()
                if descriptors:
                    self._keeper.watch()
            released = self._peer.take_released() if self._peer.released else []
            message = wire.Execute(batch, sizes, headers, released)
            count = 0 if descriptors is None else len(descriptors)
            frame = wire.pack(wire.Kind.EXECUTE, message, packer.blobs, count)
        except (ValueError, TypeError, OverflowError, OSError, MemoryError) as error:
            raise InternalError(
                f"the requests could not be handed to instance '{self._name}': {error}"
            ) from error
        self._channel.send(frame, descriptors)
        if self._pool.forgotten:
            self._send_forgotten()

    def cancel(self, number: int) -> None:
        if self._channel is not None:
            self._channel.send(wire.pack(wire.Kind.CANCEL, wire.Cancel([number])))

    async def check_ready(self) -> bool:
        """What the model says of itself; no answer in time is a no."""
        self._ready_number += 1
        answer = self._ready_answer = self._loop.create_future()
        self._send(wire.Kind.CHECK_READY, wire.CheckReady(self._ready_number))
        await asyncio.wait(
            (answer, self._ended), timeout=_READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED
        )
        self.said_ready = answer.done() and answer.result().is_ready
        error = answer.result().error if answer.done() else f"no answer in {_READY_LIMIT_S:g} s"
        if error and not self._ended.done():
            logger.warning(
                "is_ready failed: %s model=%s instance=%s", error, self._model, self._name
            )
        return self.said_ready

    async def stop(self, timeout_s: float) -> None:
        """Finalize the model and end the process; kill it after `timeout_s`."""
        self._is_started = False
        if self._channel is None:
            return
        freed = 0 if self._process is None else self._process.memory_bytes
        try:
            self._channel.send(wire.pack(wire.Kind.CLOSE, wire.Close()))
            await asyncio.wait((self._ended,), timeout=timeout_s)
            if not self._ended.done():
                logger.warning(
                    "finalize did not end within %g s, the process is killed model=%s instance=%s",
                    timeout_s,
                    self._model,
                    self._name,
                )
        finally:
            self.kill()
        await asyncio.shield(self._ended)
        logger.info(
            "the process has ended, %.1f MB came back model=%s instance=%s",
            freed / 1e6,
            self._model,
            self._name,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _send(self, kind: wire.Kind, message: wire.Message) -> None:
        if self._channel is not None:
            self._channel.send(wire.pack(kind, message))

    def _send_call_response(self, number: int, response: InferenceResponse) -> None:
        """Of another model, which this process has called."""
        if self._channel is None:
            return
        packer = TensorPacker(self._pool)
        try:
            header = response_header(number, response, packer)
            wire.check(header)
            descriptors = packer.finish()
            if descriptors:
                self._keeper.watch()
        except (ValueError, TypeError, OverflowError, OSError, MemoryError) as error:
            failure = InternalError(f"the response could not be handed over: {error}")
            packer = TensorPacker(self._pool)
            header = response_header(number, replace(response, outputs=[], error=failure), packer)
            descriptors = []
        message = wire.Responses([header], self._peer.take_released())
        frame = wire.pack(wire.Kind.CALL_RESULT, message, packer.blobs, len(descriptors))
        self._channel.send(frame, descriptors)
        self._send_forgotten()

    def _send_forgotten(self) -> None:
        if self._pool.forgotten and self._channel is not None:
            forgotten, self._pool.forgotten = self._pool.forgotten, []
            self._send_news(wire.Segments([], forgotten))

    def _send_news(self, news: wire.Segments) -> None:
        self._send(wire.Kind.SEGMENTS, news)

    def _on_frame(self, frame: wire.Frame) -> None:
        try:
            if frame.descriptors:
                self._peer.add(frame.descriptors)
                self._keeper.watch()
            if frame.kind == _RESPONSES:
                message = _decode_responses(frame.header)
                if message.released:
                    self._pool.release(message.released)
                self._on_responses(message, TensorUnpacker(frame, self._peer))
            else:
                self._dispatch(frame)
        except msgspec.DecodeError as error:
            raise wire.WireError(f"message of kind {frame.kind}: {error}") from None

    def _dispatch(self, frame: wire.Frame) -> None:
        if frame.kind == wire.Kind.LOG:
            record = _decode_log(frame.header)
            extra = {"model": self._model, "instance": self._name, "stream": "log"}
            model_logger.log(record.level, "%s: %s", self._name, record.text, extra=extra)
        elif frame.kind == wire.Kind.SEGMENT_NEWS:
            news = _decode_segments(frame.header)
            self._pool.release(news.released)
            self._peer.forget(news.forgotten)
        elif frame.kind in _FOR_THE_DESK:
            self.desk.handle(frame, TensorUnpacker(frame, self._peer))
        elif frame.kind == wire.Kind.READY:
            ready = _decode_ready(frame.header)
            waiting = self._ready_answer
            if waiting is not None and not waiting.done() and ready.number == self._ready_number:
                waiting.set_result(ready)
        elif frame.kind == wire.Kind.LOADED:
            self.has_ready_hook = _decode_loaded(frame.header).has_ready_hook
            self._settle(None)
        elif frame.kind == wire.Kind.LOAD_FAILED:
            self._settle(error_from(_decode_failed(frame.header).error))
        elif frame.kind == wire.Kind.CLOSED:
            error = _decode_closed(frame.header).error
            if error:
                logger.error(
                    "finalize failed: %s model=%s instance=%s", error, self._model, self._name
                )

    def _settle(self, error: ServingError | None) -> None:
        if not self._loaded.done():
            self._loaded.set_result(error)

    def _on_channel_error(self, reason: str) -> None:
        """The child has closed its end, which it does at its end only, or has sent nonsense."""
        self._fault = reason
        if reason:
            self.kill()
        else:
            self._loop.call_later(_EXIT_GRACE_S, self.kill)

    def _report_exit(self, report: ExitReport) -> None:
        """Watching thread."""
        try:
            self._loop.call_soon_threadsafe(self._end, report)
        except RuntimeError:
            logger.debug("the event loop is closed instance=%s", self._name)

    def _end(self, report: ExitReport) -> None:
        if self._channel is not None:
            if not self._fault:
                self._channel.drain()
            self._channel.close()
        self._keeper.close()
        self.desk.close()
        self._pool.close()
        self._peer.close()
        # They know this object: without the circle its buffers are freed now, not by a collection.
        self._channel = self._process = None
        if not self._ended.done():
            self._ended.set_result(report)
        if self._is_started:
            self._is_started = False
            reason = f"its process {report}"
            if self._fault:
                reason = f"its process broke the protocol ({self._fault}) and was ended"
            self._on_end(reason)
