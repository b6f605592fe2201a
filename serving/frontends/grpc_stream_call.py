"""One gRPC call of many messages both ways: order, pauses, back-pressure. Loop thread.

Messages are handed over as they come, unless the call is paused; then the client soon has to wait.
Large ones are inflated and compressed in threads, and keep their order.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Protocol

from serving.frontends import grpc_wire
from serving.frontends.grpc_call import BIG_BYTES, Call
from serving.frontends.grpc_compression import deflate, inflate
from serving.frontends.grpc_head import CallHead
from serving.frontends.grpc_reader import MessageReader, MessageTooLargeError
from serving.frontends.grpc_wire import PREFIX
from serving.frontends.http2.stream import Part, Stream
from serving.frontends.json_threads import JsonThreads
from serving.protocol.status import GrpcStatus


class StreamHandler(Protocol):
    """What a `StreamCall` talks to."""

    def on_message(self, data: Part) -> None: ...

    def on_end(self) -> None:
        """The client sends no more messages."""

    def on_gone(self) -> None:
        """Nobody waits for answers any more."""

    def on_drained(self) -> None:
        """The client has taken all that was sent."""


class StreamCall(Call):
    """Messages in order, back-pressure both ways."""

    __slots__ = (
        "_handler",
        "_has_ended",
        "_is_deflating",
        "_is_finished",
        "_is_inflating",
        "_is_paused",
        "_unsent",
        "_unsent_size",
        "_waiting",
    )

    def __init__(
        self,
        stream: Stream,
        head: CallHead,
        threads: JsonThreads,
        make: Callable[[StreamCall], StreamHandler],
    ) -> None:
        super().__init__(stream, head, threads)
        self._waiting: deque[tuple[bool, Part]] = deque()
        self._is_paused = False
        self._is_inflating = False
        """A message is in a thread; those behind it wait."""
        self._has_ended = False
        self._unsent: deque[list[Part]] = deque()
        """Answers behind one that a thread compresses."""
        self._unsent_size = 0
        self._is_deflating = False
        self._is_finished = False
        """Nothing follows `_unsent`."""
        self._handler = make(self)
        self.on_cancel = self._handler.on_gone

    def _on_messages(self, reader: MessageReader, is_end: bool) -> None:
        self._has_ended = self._has_ended or is_end
        self._go_on()

    def _has_message(self) -> bool:
        """There is one in `_waiting`, out of those that have come."""
        if not self._waiting and self._reader is not None:
            try:
                self._waiting.extend(self._reader.take())
            except MessageTooLargeError as error:
                self.give_up(GrpcStatus.RESOURCE_EXHAUSTED, str(error))
        return bool(self._waiting)

    @property
    def _is_held_up(self) -> bool:
        return self._is_paused or self._is_inflating or not self.is_open

    def _go_on(self) -> None:
        while not self._is_held_up and self._has_message():
            is_compressed, data = self._waiting.popleft()
            if is_compressed:
                self._is_inflating = True
                inflating = functools.partial(inflate, data, self.head.encoding)
                self._threads.run(inflating, self._on_inflated)
            else:
                self._hand_over(data)
        if self._has_ended and not self._is_held_up and not self._waiting:
            self._has_ended = False
            if self._reader is not None and self._reader.is_within_message:
                self.give_up(GrpcStatus.INVALID_ARGUMENT, "the call ended within a message")
            else:
                self._handler.on_end()

    def _on_inflated(self, inflating: asyncio.Future[bytes]) -> None:
        error = inflating.exception()
        self._is_inflating = False
        if not self.is_open:
            return
        if error is None:
            self._hand_over(inflating.result())
            self._go_on()
        elif isinstance(error, Exception):
            self._give_up_with(error)

    def _hand_over(self, data: Part) -> None:
        try:
            self._handler.on_message(data)
        except Exception as error:
            self._give_up_with(error)

    def _give_up_with(self, error: Exception) -> None:
        cancel = self.on_cancel
        self.fail_with(error)
        if cancel is not None:
            cancel()

    def on_drained(self) -> None:
        self._handler.on_drained()

    def pause(self) -> None:
        """Messages that come wait, and soon the client has to."""
        self._is_paused = True
        self._stream.pause()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._stream.resume()
            self._go_on()

    @property
    def unsent_bytes(self) -> int:
        return self._stream.pending_size + self._unsent_size

    def send(self, parts: list[Part]) -> None:
        """One message, of a size that was checked; it goes out when the client takes it."""
        encoding, size = self.head.reply_encoding, sum(map(len, parts))
        if not encoding:
            self._send(parts, is_compressed=False)
        elif size < BIG_BYTES and not self._is_deflating:
            small, is_compressed = deflate(parts, encoding)
            self._send(small, is_compressed=is_compressed)
        else:
            self._unsent.append(parts)
            self._unsent_size += size
            self._deflate_next()

    def _deflate_next(self) -> None:
        if self._is_deflating or not self._unsent:
            return
        self._is_deflating = True
        deflating = functools.partial(deflate, self._unsent.popleft(), self.head.reply_encoding)
        self._threads.run(deflating, self._on_deflated)

    def _on_deflated(self, deflating: asyncio.Future[tuple[list[Part], bool]]) -> None:
        self._is_deflating = False
        if not self.is_open:
            self._unsent.clear()
            return
        parts, is_compressed = deflating.result()
        self._unsent_size = sum(len(part) for message in self._unsent for part in message)
        self._send(parts, is_compressed=is_compressed)
        self._deflate_next()
        if self._is_finished and not self._is_deflating:
            self.finish()

    def _send(self, parts: list[Part], *, is_compressed: bool) -> None:
        self._send_head()
        size = sum(map(len, parts))
        self._stream.send_data((PREFIX.pack(is_compressed, size), *parts))

    def _send_head(self) -> None:
        if not self._has_head:
            self._has_head = True
            self._stream.send_head(grpc_wire.response_head(self.head.reply_encoding))

    def finish(self) -> None:
        """All is well, and nothing follows."""
        if self._is_deflating:
            self._is_finished = True
            return
        self._send_head()
        self._over()
        self._stream.end(grpc_wire.GOOD_TRAILERS)
