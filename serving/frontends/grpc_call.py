"""One gRPC call on a stream of HTTP/2: its messages, its deadline, its answer. Loop thread.

`UnaryCall` hands its one message over when the client has sent all of it; calls of many messages
are in `grpc_stream_call`. Neither needs a Task; what they started is told by `on_cancel` when
nobody waits any more.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence

from serving.errors import InternalError, InvalidArgumentError, ServingError
from serving.frontends import grpc_wire
from serving.frontends.grpc_compression import deflate, inflate
from serving.frontends.grpc_head import CallHead
from serving.frontends.grpc_reader import MessageReader, MessageTooLargeError
from serving.frontends.grpc_wire import PREFIX
from serving.frontends.http2.stream import Part, Stream
from serving.frontends.json_threads import JsonThreads
from serving.protocol.status import GrpcStatus, grpc_status

logger = logging.getLogger(__name__)

_INLINE_BYTES = 4 * 1024
"""Larger compressed messages inflate in a thread: a thousand times as much may come out."""
BIG_BYTES = 64 * 1024
"""Larger answers are compressed in a thread."""


class Call:
    """What both kinds have: a `Receiver` of the stream, and the way of the answer."""

    __slots__ = ("_deadline", "_has_head", "_reader", "_stream", "_threads", "head", "on_cancel")

    def __init__(self, stream: Stream, head: CallHead, threads: JsonThreads) -> None:
        self.head = head
        self.on_cancel: Callable[[], None] | None = None
        """Called when the client has gone, or its deadline has; not after the answer."""
        self._stream = stream
        self._threads = threads
        self._reader: MessageReader | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._has_head = False
        if head.timeout_s is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(head.timeout_s, self._on_deadline)

    @property
    def is_open(self) -> bool:
        """An answer would still go somewhere."""
        return self._stream.is_open

    # --- the answer ------------------------------------------------------------------------

    def fail(self, status: GrpcStatus, message: str) -> None:
        """End with a status that is an error."""
        self._over()
        self._stream.end(grpc_wire.trailers(status, message, is_alone=not self._has_head))

    def fail_with(self, error: Exception) -> None:
        """What is no ServingError is logged, and not told."""
        if isinstance(error, ServingError):
            self.fail(grpc_status(error.code), error.message)
        else:
            logger.error("a gRPC call failed unexpectedly %s", self.head.path, exc_info=error)
            self.fail(GrpcStatus.INTERNAL, "internal error, see the server's log")

    def _over(self) -> None:
        """There is an answer, or nobody to hear one."""
        self.on_cancel = None
        self._reader = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def give_up(self, status: GrpcStatus, message: str) -> None:
        """End with an error, and cancel what was begun."""
        cancel = self.on_cancel
        self.fail(status, message)
        if cancel is not None:
            cancel()

    def cut_short(self, status: GrpcStatus, message: str) -> None:
        """The same, at once: a client that does not take its answers would not hear of it."""
        self._stream.drop_unsent()
        self.give_up(status, message)

    def _on_deadline(self) -> None:
        self.cut_short(GrpcStatus.DEADLINE_EXCEEDED, "Deadline Exceeded")

    # --- Receiver --------------------------------------------------------------------------

    def on_gone(self) -> None:
        cancel = self.on_cancel
        self._over()
        if cancel is not None:
            cancel()

    def on_drained(self) -> None:
        """Of interest to streams only."""

    def free_space(self) -> memoryview | None:
        return None if self._reader is None else self._reader.free_space()

    @property
    def is_incomplete(self) -> bool:
        return self._reader is not None and self._reader.is_within_message

    def on_received(self, count: int, is_end: bool) -> None:
        if self._reader is not None:
            self._reader.received(count)
            self._on_messages(self._reader, is_end)

    def on_data(self, data: memoryview, is_end: bool) -> None:
        if not self.is_open:
            return
        if self._reader is None:
            self._reader = MessageReader()
        try:
            self._reader.feed(data)
        except MessageTooLargeError as error:
            self.give_up(GrpcStatus.RESOURCE_EXHAUSTED, str(error))
            return
        self._on_messages(self._reader, is_end)

    def _on_messages(self, reader: MessageReader, is_end: bool) -> None:
        raise InternalError("a call is either unary or a stream")


class UnaryCall(Call):
    __slots__ = ("_handle", "_message")

    def __init__(
        self,
        stream: Stream,
        head: CallHead,
        threads: JsonThreads,
        handle: Callable[[Part, UnaryCall], None],
    ) -> None:
        """`handle` takes the message, and answers now or later; it may raise ServingError."""
        super().__init__(stream, head, threads)
        self._handle = handle
        self._message: tuple[bool, Part] | None = None

    def on_data(self, data: memoryview, is_end: bool) -> None:
        """The usual small call comes in one piece: no reader is needed."""
        if is_end and self._reader is None and len(data) >= PREFIX.size:
            flag, size = PREFIX.unpack_from(data)
            if size == len(data) - PREFIX.size and not flag:
                self._begin(bytes(data[PREFIX.size :]))
                return
        super().on_data(data, is_end)

    def _on_messages(self, reader: MessageReader, is_end: bool) -> None:
        for whole in reader.take():
            if self._message is not None:
                self.fail(GrpcStatus.UNIMPLEMENTED, "this method takes one message, not several")
                return
            self._message = whole
        if not is_end:
            return
        message, self._message = self._message, None
        if reader.is_within_message or message is None:
            self.fail(GrpcStatus.INVALID_ARGUMENT, "the call ended before its message did")
        elif not message[0]:
            self._begin(message[1])
        elif len(message[1]) <= _INLINE_BYTES:
            self._begin_inflated(message[1])
        else:
            inflating = functools.partial(inflate, message[1], self.head.encoding)
            self._threads.run(inflating, self._on_inflated)

    def _begin_inflated(self, data: Part) -> None:
        try:
            whole = inflate(data, self.head.encoding)
        except ServingError as error:
            self.fail_with(error)
        else:
            self._begin(whole)

    def _on_inflated(self, inflating: asyncio.Future[bytes]) -> None:
        error = inflating.exception()
        if not self.is_open:
            return
        if error is None:
            self._begin(inflating.result())
        elif isinstance(error, Exception):
            self.fail_with(error)

    def _begin(self, message: Part) -> None:
        try:
            self._handle(message, self)
        except Exception as error:
            self.fail_with(error)

    def reply(self, parts: list[Part]) -> None:
        """The one message, and that all is well."""
        encoding = self.head.reply_encoding
        if not self._stream.is_open:
            self._over()
        elif not encoding:
            self._send(parts, False)
        elif sum(map(len, parts)) < BIG_BYTES:
            self._send(*deflate(parts, encoding))
        else:
            deflating = functools.partial(deflate, parts, encoding)
            self._threads.run(deflating, self._on_deflated)

    def _on_deflated(self, deflating: asyncio.Future[tuple[list[Part], bool]]) -> None:
        self._send(*deflating.result())

    def _send(self, parts: Sequence[Part], is_compressed: bool) -> None:
        self._over()
        try:
            size = check_size(parts)
        except ServingError as error:
            self.fail_with(error)
            return
        head = grpc_wire.response_head(self.head.reply_encoding)
        prefix = PREFIX.pack(is_compressed, size)
        self._stream.reply(head, (prefix, *parts), grpc_wire.GOOD_TRAILERS)


def check_size(parts: Sequence[Part]) -> int:
    """How long a message is. Raises InvalidArgumentError for one that is too long (GRPC-A11)."""
    size = sum(map(len, parts))
    if size > grpc_wire.MAX_MESSAGE_BYTES:
        raise InvalidArgumentError(
            f"the response has {size} bytes, more than the {grpc_wire.MAX_MESSAGE_BYTES} that a "
            "gRPC message may have"
        )
    return size
