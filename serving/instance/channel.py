"""The two ends of the socket between a worker and an instance process.

`FrameBuffer` turns received bytes into frames for both. `LoopChannel` is the worker's end: loop
thread only, never blocks, sends at once and keeps what the socket does not take. `BlockingChannel`
is the child's end: its main thread receives, any thread may send.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from serving.instance.wire import (
    ALIGNMENT,
    MAX_DESCRIPTORS,
    MAX_PAYLOAD_BYTES,
    PREFIX,
    Frame,
    WireError,
)

if TYPE_CHECKING:
    import asyncio  # the child has no loop, and starts sooner without it

_BUFFER_BYTES = 256 * 1024
_ANCILLARY_BYTES = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
# Plain integers: the operators of Python's flags cost more than a system call.
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_CTRUNC)


class FrameBuffer:
    """Reassembles frames. A frame that is larger than the buffer is received into its own bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._big: bytearray | None = None
        self._big_length = 0
        self._big_head = (0, 0, 0, 0)
        self._descriptors: deque[int] = deque()

    def receive(self, sock: socket.socket) -> bool:
        """Read once from the socket. False at its end. Raises BlockingIOError, OSError."""
        space = self._view if self._end == 0 and self._big is None else self._space()
        count, ancillary, flags, _ = sock.recvmsg_into((space,), _ANCILLARY_BYTES, _CLOSE_ON_EXEC)
        if ancillary:
            self._take_descriptors(ancillary)
        if flags & _TRUNCATED:
            raise WireError("too many descriptors at once")
        if self._big is not None:
            self._big_length += count
        else:
            self._end += count
        return count > 0

    def _take_descriptors(self, ancillary: Iterable[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                self._descriptors.extend(numbers)

    @property
    def has_frame(self) -> bool:
        """`next` has one."""
        body = self._start + PREFIX.size
        if self._big is not None:
            return self._big_length == len(self._big)
        return body <= self._end and (
            body + PREFIX.unpack_from(self._buffer, self._start)[0] <= self._end
        )

    def close(self) -> None:
        """Close descriptors that no frame has taken."""
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _space(self) -> memoryview:
        if self._big is not None:
            return memoryview(self._big)[self._big_length :]
        if _BUFFER_BYTES - self._end < _BUFFER_BYTES // 2:
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest
        return self._view[self._end :]

    def next(self) -> Frame | None:
        """The next complete frame, in order; None where there is none yet."""
        if self._big is not None:
            if self._big_length < len(self._big):
                return None
            payload, self._big = self._big, None
            return self._frame(self._big_head, payload)
        body = self._start + PREFIX.size
        if body > self._end:
            return None
        head = PREFIX.unpack_from(self._buffer, self._start)
        length = head[0]
        if length > MAX_PAYLOAD_BYTES or head[1] > length or head[2] > MAX_DESCRIPTORS:
            raise WireError("a frame has an impossible length")
        end = body + length
        if end <= self._end:
            self._start = end
            if end == self._end:
                self._start = self._end = 0
            return self._frame(head, self._buffer[body:end])
        if PREFIX.size + length > _BUFFER_BYTES // 2:
            self._big = bytearray(length)
            self._big_length = self._end - body
            self._big[: self._big_length] = self._view[body : self._end]
            self._big_head = head
            self._start = self._end = 0
        return None

    def _frame(self, head: tuple[int, ...], payload: bytearray) -> Frame:
        _, header_length, descriptor_count, kind = head
        descriptors: list[int] = []
        if descriptor_count:
            if descriptor_count > len(self._descriptors):
                raise WireError("a frame lacks its descriptors")
            descriptors = [self._descriptors.popleft() for _ in range(descriptor_count)]
        header = memoryview(payload)[:header_length]
        data_start = (header_length + ALIGNMENT - 1) & -ALIGNMENT
        return Frame(kind, header, payload, data_start, descriptors)


def _send(sock: socket.socket, data: memoryview | bytes, descriptors: list[int]) -> int:
    if not descriptors:
        return sock.send(data)
    rights = array.array("i", descriptors)
    return sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


class LoopChannel:
    """The worker's end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_frame: Callable[[Frame], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._on_frame = on_frame
        self._on_error = on_error
        self._received = FrameBuffer()
        self._backlog: deque[tuple[memoryview, list[int]]] = deque()
        self._is_open = True
        self._is_reading = True
        sock.setblocking(False)
        loop.add_reader(sock.fileno(), self._readable)

    def send(self, frame: bytes, descriptors: list[int] | None = None) -> None:
        """Descriptors must stay open until the other side has answered."""
        if not self._is_open:
            return
        if self._backlog:
            self._backlog.append((memoryview(frame), descriptors or []))
            return
        sent = 0
        try:
            if descriptors:
                sent = _send(self._socket, frame, descriptors)
            else:
                sent = self._socket.send(frame)
        except BlockingIOError:
            pass
        except OSError:
            return  # the other side is gone; its exit is reported by whoever watches it
        if sent < len(frame):
            rest = descriptors if descriptors and not sent else []
            self._backlog.append((memoryview(frame)[sent:], rest))
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def drain(self) -> None:
        """Take all that the other side has sent before it died."""
        while self._is_open and self._is_reading:
            if not self._read_once():
                return

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        descriptor = self._socket.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)
        self._socket.close()
        self._received.close()
        self._backlog.clear()
        self._on_frame = self._on_error = _ignore

    def _readable(self) -> None:
        if self._is_open:
            self._read_once()

    def _read_once(self) -> bool:
        """Whether there may be more."""
        try:
            more = self._received.receive(self._socket)
            while (frame := self._received.next()) is not None:
                self._on_frame(frame)
        except BlockingIOError:
            return False
        except WireError as error:
            self._end(str(error))
            return False
        except OSError:  # reset: it died with something unread
            self._end("")
            return False
        if not more:
            self._end("")
        return more

    def _end(self, reason: str) -> None:
        """Stop reading: an end of file would wake the loop for ever."""
        self._is_reading = False
        if self._is_open:
            self._loop.remove_reader(self._socket.fileno())
        self._on_error(reason)

    def _writable(self) -> None:
        while self._backlog:
            data, descriptors = self._backlog[0]
            try:
                sent = _send(self._socket, data, descriptors)
            except BlockingIOError:
                return
            except OSError:
                self._backlog.clear()
                break
            if sent < len(data):
                self._backlog[0] = (data[sent:], [])
                return
            self._backlog.popleft()
        self._loop.remove_writer(self._socket.fileno())


def _ignore(_: object) -> None:
    """Takes the place of callbacks that are not called any more."""


class BlockingChannel:
    """The child's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = FrameBuffer()
        self._send_lock = threading.Lock()

    @property
    def has_frame(self) -> bool:
        """`receive` would not wait."""
        return self._received.has_frame

    def receive(self) -> Frame | None:
        """The next frame; None when the worker has closed its end."""
        while (frame := self._received.next()) is None:
            if not self._received.receive(self._socket):
                return None
        return frame

    def send(self, frame: bytes, descriptors: list[int] | None = None) -> None:
        with self._send_lock:
            if descriptors:
                sent = _send(self._socket, frame, descriptors)
            else:
                sent = self._socket.send(frame)
            if sent < len(frame):
                self._socket.sendall(memoryview(frame)[sent:])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        self._received.close()
