"""The streams of one connection: how they open, what they may send, how they end. Loop thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code, ConnectionFaultError, StreamFaultError
from serving.frontends.http2.guard import Budget
from serving.frontends.http2.header_blocks import HeaderReader
from serving.frontends.http2.stream import Stream

if TYPE_CHECKING:
    from serving.frontends.http2.connection import Http2Connection

logger = logging.getLogger(__name__)

_NOTHING = memoryview(b"")


class Streams:
    """Takes DATA and header blocks; `Http2Connection` has the rest."""

    def __init__(self, connection: Http2Connection, nuisance: Budget) -> None:
        server = connection.server
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        self._connection = connection
        self._outbox = connection.outbox
        self._application = server.application
        self._limits = server.limits
        self._nuisance = nuisance
        self._headers: HeaderReader[Any] = HeaderReader(
            server.application.read_head, server.blocks, self._limits.max_header_list
        )
        self._block: list[bytes] = []
        self._block_ends = False
        self.open_block = 0
        """The stream whose header block goes on in the next frame."""
        self._window = self._limits.connection_window
        """What the client may still send on all streams together."""
        self._owed = 0

    # --- DATA ------------------------------------------------------------------------------

    def on_data_frame(self, stream_id: int, length: int) -> Stream | None:
        """DATA begins. Takes `length` out of the windows; None: nobody wants it."""
        stream = self.open.get(stream_id)
        self._window -= length
        if self._window < 0:
            raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, "more DATA than the window takes")
        if stream is None:
            if stream_id > self.last_id or not stream_id & 1:
                raise ConnectionFaultError(Code.PROTOCOL_ERROR, "DATA on a stream that is not open")
            return None
        if stream.is_remote_closed:
            raise StreamFaultError(stream_id, Code.STREAM_CLOSED, "DATA after the end")
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise StreamFaultError(stream_id, Code.FLOW_CONTROL_ERROR, "more DATA than its window")
        return stream

    def on_data(self, stream: Stream | None, data: memoryview, is_end: bool) -> None:
        if not len(data) and not is_end:
            self._nuisance.spend()
        if stream is not None and stream.receiver is not None and not stream.is_local_closed:
            if is_end:
                stream.is_remote_closed = True
            self._guarded(stream, stream.receiver.on_data, data, is_end)
        self.credit(stream, len(data))

    def on_direct(self, stream: Stream, count: int, is_end: bool) -> None:
        """So many bytes lie in the receiver's own memory."""
        if stream.receiver is not None and not stream.is_local_closed:
            if is_end:
                stream.is_remote_closed = True
            self._guarded(stream, stream.receiver.on_received, count, is_end)
        self.credit(stream, count)

    def on_stream_fault(self, fault: StreamFaultError) -> None:
        self._nuisance.spend()
        stream = self.open.get(fault.stream_id)
        if stream is None:
            self._outbox.control(frames.reset(fault.stream_id, fault.code))
        else:
            self.reset(stream, fault.code, is_gone=True)

    def _guarded(self, stream: Stream, receive: Any, *arguments: object) -> None:
        """One stream's receiver must not end the others."""
        try:
            receive(*arguments)
        except Exception:
            logger.exception("a receiver of HTTP/2 data failed unexpectedly")
            self.reset(stream, Code.INTERNAL_ERROR, is_gone=True)

    def credit(self, stream: Stream | None, count: int) -> None:
        """Give the client new window for bytes that were taken, when it has become worth a frame.

        That of the connection grows even where a stream is paused: others must not wait for it.
        """
        if stream is not None and not stream.is_local_closed:
            stream.owed += count
            self.credit_stream(stream)
        self._owed += count
        if self._owed >= self._limits.connection_window // 2:
            self._outbox.control(frames.window_update(0, self._owed))
            self._window += self._owed
            self._owed = 0

    def credit_stream(self, stream: Stream) -> None:
        """Not while it is paused."""
        is_worth_it = stream.owed >= self._limits.stream_window // 2
        if is_worth_it and not stream.is_paused and not stream.is_remote_closed:
            self._outbox.control(frames.window_update(stream.id, stream.owed))
            stream.receive_window += stream.owed
            stream.owed = 0

    # --- heads -----------------------------------------------------------------------------

    def on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            payload = _without_padding(flags, payload)
        if not stream_id & 1:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        if flags & frames.END_HEADERS:
            self._on_block(stream_id, payload, bool(flags & frames.END_STREAM))
        else:
            self._block, self._block_ends = [payload], bool(flags & frames.END_STREAM)
            self.open_block = stream_id

    def on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self.open_block:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block, limits = self._block, self._limits
        block.append(payload)
        is_long = sum(map(len, block)) > limits.max_header_block
        if is_long or len(block) > limits.max_continuations + 1:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "a header block without end")
        if flags & frames.END_HEADERS:
            self._block, self.open_block = [], 0
            self._on_block(stream_id, b"".join(block), self._block_ends)

    def _on_block(self, stream_id: int, block: bytes, is_end: bool) -> None:
        head = self._headers.read(block)  # always: the table of a client may change with it
        stream = self.open.get(stream_id)
        if stream is not None:
            if not is_end or stream.is_remote_closed:
                raise StreamFaultError(stream_id, Code.PROTOCOL_ERROR, "HEADERS within a stream")
            self.on_data(stream, _NOTHING, True)  # trailers: they say nothing to a server
        elif stream_id <= self.last_id:
            self._nuisance.spend()  # of a stream that we have ended, before the client knew
        else:
            self.last_id = stream_id
            self._open(stream_id, head, is_end)

    def _open(self, stream_id: int, head: Any, is_end: bool) -> None:
        if self._connection.is_final or len(self.open) >= self._limits.max_concurrent_streams:
            self._nuisance.spend()
            self._outbox.control(frames.reset(stream_id, Code.REFUSED_STREAM))
            return
        windows = (self._outbox.initial_window, self._limits.stream_window)
        stream = self.open[stream_id] = Stream(self._connection, stream_id, windows)
        try:
            stream.receiver = self._application.open(stream, head)
        except Exception:
            logger.exception("a stream cannot be opened")
            self.reset(stream, Code.INTERNAL_ERROR)
            return
        if is_end:
            self.on_data(stream, _NOTHING, True)

    # --- the end of streams ----------------------------------------------------------------

    def ended(self, stream: Stream) -> None:
        """We have sent all that we will."""
        if not stream.is_remote_closed:
            # So that the client stops sending what nobody wants.
            self._outbox.control(frames.reset(stream.id, Code.NO_ERROR))
        self.forget(stream, is_gone=False)

    def reset(self, stream: Stream, code: Code, *, is_gone: bool = False) -> None:
        """`is_gone`: its receiver has to hear of it."""
        if stream.id in self.open:
            self._outbox.control(frames.reset(stream.id, code))
            self.forget(stream, is_gone=is_gone)

    def forget(self, stream: Stream, *, is_gone: bool) -> None:
        self.open.pop(stream.id, None)
        stream.is_local_closed = True
        self._outbox.drop(stream)
        receiver, stream.receiver = stream.receiver, None
        if is_gone and receiver is not None:
            self._guarded(stream, receiver.on_gone)
        self._connection.stream_ended()

    def abandon(self) -> None:
        """Nobody waits for any answer."""
        for stream in list(self.open.values()):
            self.forget(stream, is_gone=True)

    @property
    def has_incomplete(self) -> bool:
        """Something has begun that only more bytes can end."""
        if self.open_block:
            return True
        return any(
            stream.receiver is not None and not stream.is_paused and stream.receiver.is_incomplete
            for stream in self.open.values()
        )


def _without_padding(flags: int, payload: bytes) -> bytes:
    """The header block of a HEADERS frame; what it says of priority is skipped."""
    start, end = 0, len(payload)
    if flags & frames.PADDED:
        end -= payload[0] if payload else 1
        start = 1
    if flags & frames.WITH_PRIORITY:
        start += 5
    if start > end:
        raise ConnectionFaultError(Code.PROTOCOL_ERROR, "HEADERS are shorter than their padding")
    return payload[start:end]
