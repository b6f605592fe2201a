"""One stream of a connection: its windows, what it still has to send, who takes what comes.

Its methods are what the application answers with. Loop thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from serving.frontends.http2.frames import Code

if TYPE_CHECKING:
    from serving.frontends.http2.application import Receiver
    from serving.frontends.http2.connection import Http2Connection

Part = bytes | memoryview


class Stream:
    __slots__ = (
        "_connection",
        "id",
        "is_local_closed",
        "is_paused",
        "is_remote_closed",
        "is_waiting",
        "owed",
        "pending",
        "pending_size",
        "receive_window",
        "receiver",
        "send_window",
        "trailers",
    )

    def __init__(self, connection: Http2Connection, stream_id: int, windows: tuple[int, int]):
        """`windows`: what may be sent, and what may be received, to begin with."""
        self._connection = connection
        self.id = stream_id
        self.send_window, self.receive_window = windows
        self.receiver: Receiver | None = None
        self.pending: deque[Part] = deque()
        """DATA that the windows or the transport do not take yet."""
        self.pending_size = 0
        self.trailers: bytes | None = None
        """To be sent when nothing is pending any more."""
        self.is_waiting = False
        """It is in the outbox's queue."""
        self.is_local_closed = False
        self.is_remote_closed = False
        self.is_paused = False
        self.owed = 0
        """Received bytes for which the client was not yet given new window."""

    def __repr__(self) -> str:
        return f"<Stream {self.id} window={self.send_window} pending={self.pending_size}>"

    @property
    def is_open(self) -> bool:
        """It may still be answered."""
        return not self.is_local_closed and self.trailers is None

    def reply(self, head: bytes, parts: Sequence[Part], trailers: bytes) -> None:
        """The whole answer: a block of headers, one body, a block of trailers."""
        if self.is_open:
            self._connection.outbox.reply(self, head, parts, trailers)

    def send_head(self, block: bytes) -> None:
        if self.is_open:
            self._connection.outbox.send_head(self, block)

    def send_data(self, parts: Sequence[Part]) -> None:
        if self.is_open:
            self._connection.outbox.send_data(self, parts)

    def end(self, block: bytes) -> None:
        """Trailers, or headers without a body; nothing follows."""
        if self.is_open:
            self._connection.outbox.end(self, block)

    def drop_unsent(self) -> None:
        """What waits is not sent any more: an end that follows need not wait for it."""
        if self.is_open:
            self._connection.outbox.drop(self)

    def reset(self, code: Code) -> None:
        """Take the stream back. What still waits to be sent is dropped."""
        if not self.is_local_closed:
            self._connection.streams.reset(self, code)

    def pause(self) -> None:
        """The client gets no new window for what it sends: it can send one more window full."""
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._connection.touch()
            if not self.is_local_closed:
                self._connection.streams.credit_stream(self)
