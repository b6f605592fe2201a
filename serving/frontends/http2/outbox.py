"""What leaves a connection: frames in one write for each turn of the loop, DATA within the windows.

Streams whose DATA has to wait stand in a queue and take turns. While the transport holds more than
its high-water mark, DATA stays here, where a reset can still drop it. Loop thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code, ConnectionFaultError, StreamFaultError
from serving.frontends.http2.stream import Part, Stream

_JOIN_BELOW = 64 * 1024
_TURN = 256 * 1024
"""Bytes that one stream sends before the next one has its turn."""
_LEAST_SWEEP = 1024
_pack = frames.HEAD.pack


class Outbox:
    def __init__(
        self, wake: Callable[[], None], on_end: Callable[[Stream], None], max_unwritten: int
    ) -> None:
        """`wake`: there is something to write. `on_end`: a stream has sent its last frame.

        Where more than `max_unwritten` bytes are yet to be taken, DATA waits for the next write.
        """
        self._max_unwritten = max_unwritten
        self._wake = wake
        self._on_end = on_end
        self._parts: list[Part] = []
        self._size = 0
        self._queue: deque[Stream] = deque()
        self._sweep_at = _LEAST_SWEEP
        self.window = frames.DEFAULT_WINDOW
        """Of the connection."""
        self.initial_window = frames.DEFAULT_WINDOW
        """Of new streams, as the client has set it."""
        self.max_frame_size = frames.LEAST_FRAME_SIZE
        self.table_update = b""
        """Goes before the next header block."""
        self.is_paused = False
        self.has_answered = False
        """HEADERS or DATA have left since somebody set this to False."""

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def has_waiting(self) -> bool:
        """DATA of some stream waits for its turn, or for window."""
        return bool(self._queue)

    @property
    def _is_full(self) -> bool:
        return self._size >= self._max_unwritten

    def control(self, data: bytes) -> None:
        """A whole frame that no window holds up."""
        self._parts.append(data)
        self._size += len(data)
        self._wake()

    def take(self) -> list[Part]:
        """What is to be written now; small things joined."""
        parts, size = self._parts, self._size
        self._parts, self._size = [], 0
        return parts if size > _JOIN_BELOW or len(parts) < 2 else [b"".join(parts)]

    def reply(self, stream: Stream, head: bytes, parts: Sequence[Part], trailers: bytes) -> None:
        size = sum(map(len, parts))
        is_now = size <= self.window and size <= stream.send_window and size <= self.max_frame_size
        is_held = self.is_paused or stream.pending_size or self._is_full
        if not is_now or is_held or self.table_update:
            self.send_head(stream, head)
            self.send_data(stream, parts)
            self.end(stream, trailers)
            return
        self.window -= size
        stream.send_window -= size
        number = stream.id
        self._parts += (
            _pack(len(head) >> 8, len(head) & 0xFF, frames.HEADERS, frames.END_HEADERS, number),
            head,
            _pack(size >> 8, size & 0xFF, frames.DATA, 0, number),
            *parts,
        )
        self._size += size + len(head) + 2 * frames.HEAD_SIZE
        self._last(stream, trailers)

    def send_head(self, stream: Stream, block: bytes) -> None:
        self._headers(stream, block, 0)

    def send_data(self, stream: Stream, parts: Sequence[Part]) -> None:
        stream.pending.extend(part for part in parts if len(part))
        stream.pending_size += sum(map(len, parts))
        self.enqueue(stream)
        self.pump()

    def end(self, stream: Stream, block: bytes) -> None:
        if stream.pending_size:
            stream.trailers = block
        else:
            self._last(stream, block)

    def _last(self, stream: Stream, block: bytes) -> None:
        stream.trailers = block
        stream.is_local_closed = True
        self._headers(stream, block, frames.END_STREAM)
        self._on_end(stream)

    def _headers(self, stream: Stream, block: bytes, flags: int) -> None:
        """One frame, and CONTINUATION where the block is larger than every client takes."""
        if self.table_update:
            block, self.table_update = self.table_update + block, b""
        kind, at = frames.HEADERS, 0
        while True:
            part = block[at : at + frames.LEAST_FRAME_SIZE]
            at += len(part)
            if at >= len(block):
                flags |= frames.END_HEADERS
            self._parts += (frames.head(len(part), kind, flags, stream.id), part)
            self._size += frames.HEAD_SIZE + len(part)
            if at >= len(block):
                break
            kind, flags = frames.CONTINUATION, 0
        self.has_answered = True
        self._wake()

    # --- DATA that waits -------------------------------------------------------------------

    def enqueue(self, stream: Stream) -> None:
        if stream.pending_size and not stream.is_waiting:
            stream.is_waiting = True
            self._queue.append(stream)
            if len(self._queue) > self._sweep_at:
                self._sweep()

    def _sweep(self) -> None:
        """Streams that were dropped leave the queue in their turn, or here: it may never come."""
        queue = self._queue
        waiting = [stream for stream in queue if stream.pending_size]
        queue.clear()
        queue.extend(waiting)
        self._sweep_at = max(_LEAST_SWEEP, 2 * len(waiting))

    def drop(self, stream: Stream) -> None:
        """The stream is no more: what it has pending is not sent."""
        stream.pending.clear()
        stream.pending_size = 0

    def pump(self) -> None:
        """Put out what the windows and the transport take."""
        queue = self._queue
        while queue and self.window > 0 and not self.is_paused and not self._is_full:
            stream = queue.popleft()
            stream.is_waiting = False
            allowed = min(stream.pending_size, stream.send_window, self.window, _TURN)
            if allowed <= 0:
                continue  # it comes back with more window, or has been dropped
            self._send(stream, allowed)
            if stream.pending_size:
                self.enqueue(stream)
                continue
            if stream.trailers is not None:
                self._last(stream, stream.trailers)
            elif stream.receiver is not None:
                stream.receiver.on_drained()

    def _send(self, stream: Stream, size: int) -> None:
        self.window -= size
        stream.send_window -= size
        stream.pending_size -= size
        self.has_answered = True
        while size:
            length = min(size, self.max_frame_size)
            self._parts.append(frames.head(length, frames.DATA, 0, stream.id))
            self._size += frames.HEAD_SIZE + length
            self._cut(stream.pending, length)
            size -= length
        self._wake()

    def _cut(self, pending: deque[Part], length: int) -> None:
        while length:
            part = pending.popleft()
            if len(part) > length:
                view = memoryview(part)
                pending.appendleft(view[length:])
                part = view[:length]
            self._parts.append(part)
            length -= len(part)

    # --- windows ---------------------------------------------------------------------------

    def widen(self, increment: int) -> None:
        """Of the connection. Raises ConnectionFaultError beyond what a window can be."""
        self.window += increment
        if self.window > frames.MOST_WINDOW:
            raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, "the connection's window overflows")
        if self._queue:
            self.pump()

    def widen_stream(self, stream: Stream, increment: int) -> None:
        """Raises StreamFaultError beyond what a window can be."""
        stream.send_window += increment
        if stream.send_window > frames.MOST_WINDOW:
            raise StreamFaultError(stream.id, Code.FLOW_CONTROL_ERROR, "its window overflows")
        if stream.pending_size:
            self.enqueue(stream)
            self.pump()
