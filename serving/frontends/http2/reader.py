"""Frames out of the bytes of one connection. Loop thread.

All connections of a server read into one buffer: what a read has brought is dealt with before the
next one starts. Frames other than DATA are handed over whole; DATA is handed over as it comes, and
a large rest of it is received straight into the memory of whoever takes it.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code, ConnectionFaultError, StreamFaultError
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.stream import Stream
from serving.frontends.http2.streams import Streams

_DIRECT_ABOVE = 32 * 1024
"""Less of a DATA frame than this goes through the shared buffer: a read of its own costs more."""

OnFrame = Callable[[int, int, int, bytes], None]
"""Kind, flags, stream, payload."""


class FrameReader:
    def __init__(
        self, streams: Streams, on_frame: OnFrame, buffer: memoryview, limits: Http2Limits
    ) -> None:
        self._streams = streams
        self._on_frame = on_frame
        self._buffer = buffer
        self._max_frame_size = limits.max_frame_size
        self._max_whole_frame = limits.max_header_block
        """Of frames other than DATA: they are collected before they are looked at."""
        self._partial = b""
        self._preface_left = frames.PREFACE
        self._data_left = 0
        """Of the DATA frame that we are in."""
        self._padding_left = 0
        self._ends = False
        self._stream: Stream | None = None
        self._is_direct = False
        self.has_settings = False
        """The client has said what it must before anything else."""

    @property
    def is_within_frame(self) -> bool:
        return bool(self._partial or self._data_left)

    def get_buffer(self) -> memoryview:
        self._is_direct = False
        stream = self._stream
        if self._data_left > _DIRECT_ABOVE and stream is not None and stream.receiver is not None:
            space = stream.receiver.free_space()
            if space is not None:
                self._is_direct = True
                return space[: self._data_left]
        return self._buffer

    def received(self, count: int) -> None:
        """So many bytes lie in what `get_buffer` gave. Raises ConnectionFaultError."""
        if self._is_direct:
            self._is_direct = False
            self._data_left -= count
            stream = self._stream
            assert stream is not None
            self._streams.on_direct(stream, count, self._ends and not self._data_left)
            return
        data = self._buffer[:count]
        if self._partial:
            data = memoryview(self._partial + data)
            self._partial = b""
        if self._preface_left:
            data = self._check_preface(data)
        self._consume(data)

    def _check_preface(self, data: memoryview) -> memoryview:
        size = min(len(data), len(self._preface_left))
        if data[:size] != self._preface_left[:size]:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "this port speaks HTTP/2 only")
        self._preface_left = self._preface_left[size:]
        return data[size:]

    def _consume(self, data: memoryview) -> None:
        at, end = 0, len(data)
        while at < end:
            if self._data_left or self._padding_left:
                at = self._go_on(data, at, end)
                continue
            start = at + frames.HEAD_SIZE
            if start > end:
                break
            high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
            length, number = high << 8 | low, number & frames.STREAM_MASK
            self._check(kind, flags, number, length)
            if kind == frames.DATA:
                if flags & frames.PADDED and start >= end and length:
                    break  # the length of the padding is yet to come
                at = self._begin_data(data, start, length, flags, number)
                continue
            if start + length > end:
                break
            at = start + length
            try:
                self._on_frame(kind, flags, number, bytes(data[start:at]))
            except StreamFaultError as fault:
                self._streams.on_stream_fault(fault)
        if at < end:
            self._partial = bytes(data[at:])

    def _check(self, kind: int, flags: int, number: int, length: int) -> None:
        if length > self._max_frame_size:
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
        if kind != frames.DATA and length > self._max_whole_frame:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, f"a frame of {length} bytes")
        block = self._streams.open_block
        if block and (kind != frames.CONTINUATION or number != block):
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a header block is not continued")
        if not self.has_settings:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise ConnectionFaultError(Code.PROTOCOL_ERROR, "the first frame is no SETTINGS")
            self.has_settings = True

    def _begin_data(
        self, data: memoryview, start: int, length: int, flags: int, number: int
    ) -> int:
        """Returns where the content begins."""
        padding, content, at = 0, length, start
        if flags & frames.PADDED:
            padding = data[start] if length else 0
            content, at = length - 1 - padding, start + 1
            if content < 0:
                raise ConnectionFaultError(Code.PROTOCOL_ERROR, "more padding than DATA")
        is_end = bool(flags & frames.END_STREAM)
        self._data_left, self._padding_left, self._ends = content, padding, is_end
        self._stream = None
        try:
            self._stream = self._streams.on_data_frame(number, length)
        except StreamFaultError as fault:  # its content has to be skipped
            self._streams.on_stream_fault(fault)
        if at > start:
            self._streams.credit(self._stream, 1)
        if not content:
            self._streams.on_data(self._stream, data[:0], is_end)
        return at

    def _go_on(self, data: memoryview, at: int, end: int) -> int:
        stream = self._stream
        if self._data_left:
            size = min(self._data_left, end - at)
            self._data_left -= size
            is_end = self._ends and not self._data_left
            self._streams.on_data(stream, data[at : at + size], is_end)
        else:
            size = min(self._padding_left, end - at)
            self._padding_left -= size
            self._streams.credit(stream, size)
        return at + size
