"""The child's end of the connection to its worker: who receives, who sends, and the shared tensors.

No thread does nothing but receive: whichever thread waits for something takes the lead, receives
and hands out what comes, also what others wait for. So a batch costs no switch between threads, and
a thread that calls another model gets its answer while the main thread executes. Any thread may
enter; `lock` guards the segments and the order of frames.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from serving.instance import wire
from serving.instance.channel import BlockingChannel
from serving.instance.shared_tensors import (
    PeerSegments,
    SegmentPool,
    TensorPacker,
    TensorUnpacker,
)

Handler = Callable[[wire.Frame], None]


class ChildLink:
    def __init__(self, sock: socket.socket) -> None:
        self.handlers: dict[int, Handler] = {}
        """By message kind; called by the thread that leads, so they only note and return."""
        self.lock = threading.RLock()
        self.pool = SegmentPool()
        self._peer = PeerSegments(writable=True)
        self._channel = BlockingChannel(sock)
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._lead = threading.Lock()
        self._arrived = threading.Condition()
        self._waiting = 0
        """Threads that look at `_arrived`, or are about to: mostly none, and nobody is told."""
        self._receiver: threading.Thread | None = None
        self.late: deque[Callable[[], None]] = deque()
        """For `run_late`."""
        self.is_closed = False
        """The worker has closed its end, or this is a process that the model has forked."""
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def wait_for(self, is_done: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Handle what comes until `is_done`; False at the timeout, or when the worker is gone."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_done():
            if self.is_closed:
                return bool(is_done())
            if not self._lead.acquire(blocking=False) and not self._take_lead(is_done, end):
                return bool(is_done())
            try:
                while not is_done() and self._receive(end):
                    pass
            finally:
                self._leave_lead()
            if end is not None and time.monotonic() >= end:
                return bool(is_done())
        return True

    def poll(self) -> None:
        """Handle what has come by now, unless another thread does anyway."""
        if self.is_closed or not self._lead.acquire(blocking=False):
            return
        try:
            while self._channel.has_frame or self._readable.poll(0):
                if not self._handle(self._channel.receive()):
                    return
        finally:
            self._leave_lead()

    def keep_receiving(self) -> None:
        """From now on a thread receives whenever no other does: for those who cannot wait here."""
        with self._arrived:
            if self._receiver is None:
                self._receiver = threading.Thread(
                    target=self.wait_for, args=(lambda: False,), name="receiver", daemon=True
                )
                self._receiver.start()

    def send(self, kind: wire.Kind, message: wire.Message) -> None:
        """Raises what cannot be encoded: ValueError, TypeError or OverflowError."""
        self._check_open()
        self._channel.send(wire.pack(kind, message))

    def send_packed(
        self, kind: wire.Kind, message: wire.Message, packer: TensorPacker, descriptors: list[int]
    ) -> None:
        """With tensors, under `lock`. Raises as `send`; `packer` can be used again then."""
        if self.is_closed:
            self._check_open()
        self._channel.send(wire.pack(kind, message, packer.blobs, len(descriptors)), descriptors)
        self._tell_news([])

    def _tell_news(self, released: list[int]) -> None:
        """Under `lock`. Of the worker's segments these; of ours, which it maps, the forgotten."""
        if (released or self.pool.forgotten) and not self.is_closed:
            forgotten, self.pool.forgotten = self.pool.forgotten, []
            self.send(wire.Kind.SEGMENT_NEWS, wire.Segments(released, forgotten))

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` soon, where the lock is free: for finalizers, which may come at any point."""
        if self.is_closed:
            return
        self.late.append(work)
        if not self.lock._is_owned():  # type: ignore[attr-defined]
            self.run_late()

    def run_late(self) -> None:
        while self.late:
            self.late.popleft()()

    def _leave_to_parent(self) -> None:
        """In a process that the model has forked: the connection is not its own."""
        self.is_closed = True

    def _check_open(self) -> None:
        if self.is_closed:
            raise BrokenPipeError("there is no connection to the server in this process")

    def unpacker(self, frame: wire.Frame) -> TensorUnpacker:
        return TensorUnpacker(frame, self._peer)

    def take_released(self) -> list[int]:
        return self._peer.take_released() if self._peer.released else []

    def release(self, numbers: list[int]) -> None:
        with self.lock:
            self.pool.release(numbers)

    def release_without_answer(self, numbers: list[int], *, must_trim: bool) -> None:
        """No answer will take the news along, so they go now. `must_trim`: keep no idle segment,
        and say which of the worker's nobody views any more.
        """
        with self.lock:
            self.pool.release(numbers)
            if must_trim:
                self.pool.trim()
            self._tell_news(self.take_released() if must_trim else [])

    def forget(self, numbers: Iterable[int]) -> None:
        self._peer.forget(list(numbers))

    def _take_lead(self, is_done: Callable[[], object], end: float | None) -> bool:
        """False: it is done, or the time is over, or the worker gone; the lead is not ours then."""
        with self._arrived:
            # Counted before it looks: whoever brings something or leaves the lead after that tells.
            self._waiting += 1
            try:
                while not is_done() and not self.is_closed:
                    if self._lead.acquire(blocking=False):
                        return True
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._arrived.wait(left)
            finally:
                self._waiting -= 1
        return False

    def _leave_lead(self) -> None:
        self._lead.release()
        if self._waiting:
            self._tell()

    def _tell(self) -> None:
        with self._arrived:
            self._arrived.notify_all()

    def _receive(self, end: float | None) -> bool:
        """Wait for one frame and handle it; False when there is none."""
        if end is not None and not self._channel.has_frame:
            left = end - time.monotonic()
            if left <= 0 or not self._readable.poll(left * 1000):
                return False
        return self._handle(self._channel.receive())

    def _handle(self, frame: wire.Frame | None) -> bool:
        if frame is None:
            self.is_closed = True
        else:
            if frame.descriptors:
                self._peer.add(frame.descriptors)
            handler = self.handlers.get(frame.kind)
            if handler is not None:
                handler(frame)
        if self._waiting:
            self._tell()
        return frame is not None
