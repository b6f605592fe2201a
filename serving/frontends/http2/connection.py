"""One HTTP/2 connection of a client: its transport, its control frames, its end. Loop thread.

What streams answer leaves in one write for each turn of the loop. While the client does not take
what is written, nothing is read from it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code, ConnectionFaultError, StreamFaultError
from serving.frontends.http2.guard import Budget
from serving.frontends.http2.keepalive import OUR_PING, KeepAlive
from serving.frontends.http2.outbox import Outbox
from serving.frontends.http2.reader import FrameReader
from serving.frontends.http2.settings import apply_settings
from serving.frontends.http2.stream import Stream
from serving.frontends.http2.streams import Streams

if TYPE_CHECKING:
    from serving.frontends.http2.server import Http2Server

logger = logging.getLogger(__name__)

_DRAIN_PING = b"conch\x00\x00\x02"
_LINGER_S = 1.0
"""How long a client may still send when we end the connection, so that it gets to read why."""
_SMALL_WINDOW = 64
"""A client that gives out window in pieces of this size makes us send frames of no content."""
_STREAMS_PER_COST = 256
"""A window of SETTINGS is that of every stream: with many, such a frame takes its time."""


class Http2Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Http2Server) -> None:
        self.server = server
        self.limits = limits = server.limits
        self.last_read_s = 0.0
        self.is_final = False
        """No further stream is taken."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        now = self._loop.time
        self._nuisance = Budget(
            limits.nuisance_burst, limits.nuisance_per_s, now, "too many frames without content"
        )
        self._resets = Budget(limits.reset_burst, limits.resets_per_s, now, "too many resets")
        self.outbox = Outbox(self._wake, self._on_stream_end, limits.write_high_water)
        self.streams = Streams(self, self._nuisance)
        self._reader = FrameReader(self.streams, self._on_frame, server.read_buffer, limits)
        self._keepalive = KeepAlive(self)
        self._preface_timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_woken = False
        self._is_handling = False
        self._is_refused = False
        """The connection ends with GOAWAY; nothing that comes is looked at."""
        self._is_draining = False

    # --- transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limits = self.limits
        high = limits.write_high_water
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        self.server.connections.add(self)
        self.last_read_s = self._loop.time()
        self._preface_timer = self._loop.call_later(limits.preface_timeout_s, self._on_no_preface)
        self.outbox.control(self.server.greeting)
        if self.server.is_stopping:
            self.drain("the server stops")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keepalive.stop()
        for timer in (self._preface_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        self.streams.abandon()
        self.server.forget(self)

    def eof_received(self) -> bool:
        return False

    def _on_no_preface(self) -> None:
        self._fail(ConnectionFaultError(Code.SETTINGS_TIMEOUT, "no preface came in time"))

    def pause_writing(self) -> None:
        self.outbox.is_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        self.outbox.is_paused = False
        self.outbox.pump()
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        want, transport = not self.outbox.is_paused, self._transport
        if transport is None or want == self._is_reading or transport.is_closing():
            return
        self._is_reading = want
        if want:
            self.touch()
            transport.resume_reading()
        else:
            transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.server.read_buffer if self._is_refused else self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_refused:
            return
        self.last_read_s = self._loop.time()
        self._is_handling = True
        try:
            self._reader.received(nbytes)
        except ConnectionFaultError as fault:
            self._fail(fault)
        except Exception:
            logger.exception("an HTTP/2 connection failed unexpectedly")
            self._fail(ConnectionFaultError(Code.INTERNAL_ERROR, "see the server's log"))
        finally:
            self._is_handling = False
        self._flush()

    # --- writing ---------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_handling and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_woken = False
        outbox = self.outbox
        while not outbox.is_empty:
            transport, parts = self._transport, outbox.take()
            if transport is None or transport.is_closing():
                return
            if len(parts) == 1:
                transport.write(parts[0])
            else:
                transport.writelines(parts)
            if outbox.has_waiting:
                outbox.pump()

    # --- frames ----------------------------------------------------------------------------

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == frames.HEADERS:
            self.streams.on_headers(flags, stream_id, payload)
        elif kind == frames.WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        elif kind == frames.PING:
            self._on_ping(flags, stream_id, payload)
        elif kind == frames.SETTINGS:
            self._on_settings(flags, stream_id, payload)
        elif kind == frames.RST_STREAM:
            self._on_reset(stream_id, payload)
        elif kind == frames.CONTINUATION:
            self.streams.on_continuation(flags, stream_id, payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a client cannot push")
        else:  # PRIORITY, GOAWAY, and kinds that are not known: nothing to do
            self._nuisance.spend()

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        increment = _long(payload) & frames.STREAM_MASK
        if not stream_id:
            self._check_increment(increment, self.outbox.has_waiting)
            self.outbox.widen(increment)
            return
        self._check_known(stream_id)
        stream = self.streams.open.get(stream_id)
        if stream is None:
            return  # of a stream that has ended
        if not increment:
            raise StreamFaultError(stream_id, Code.PROTOCOL_ERROR, "a window grows by 0")
        self._check_increment(increment, bool(stream.pending_size))
        self.outbox.widen_stream(stream, increment)

    def _check_increment(self, increment: int, is_wanted: bool) -> None:
        if not increment:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a window grows by 0")
        if increment < _SMALL_WINDOW and is_wanted:
            self._nuisance.spend()

    def _on_reset(self, stream_id: int, payload: bytes) -> None:
        _long(payload)
        self._check_known(stream_id)
        self._resets.spend()
        stream = self.streams.open.get(stream_id)
        if stream is not None:
            self.streams.forget(stream, is_gone=True)

    def _check_known(self, stream_id: int) -> None:
        if stream_id > self.streams.last_id or not stream_id & 1:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, f"stream {stream_id} is not open")

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "SETTINGS on a stream")
        self._nuisance.spend(1 + len(self.streams.open) // _STREAMS_PER_COST)
        if flags & frames.ACK:
            if payload:
                raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "SETTINGS ACK with content")
            return
        if self._preface_timer is not None:
            self._preface_timer.cancel()
            self._preface_timer = None
            self._keepalive.start()
        self.outbox.control(frames.SETTINGS_ACK)
        apply_settings(frames.parse_settings(payload), self.outbox, self.streams.open.values())

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "PING without its 8 bytes")
        if not flags & frames.ACK:
            if self._keepalive.on_ping():
                self._nuisance.spend()
            self.outbox.control(frames.ping(payload, is_ack=True))
        elif payload == OUR_PING:
            self._keepalive.on_pong()
        elif payload == _DRAIN_PING and self._is_draining:
            self._finish_draining()

    # --- the end ---------------------------------------------------------------------------

    def _on_stream_end(self, stream: Stream) -> None:
        self.streams.ended(stream)

    def stream_ended(self) -> None:
        if self.is_final and not self.streams.open and not self._is_refused:
            self._close()

    def drain(self, why: str) -> None:
        """Take no new calls, finish those in progress, close. Clients are told in time for the
        ones that they have just sent: first GOAWAY, and after a round trip the last stream.
        """
        if self._is_draining or self._is_refused or self._transport is None:
            return
        self._is_draining = True
        self.outbox.control(frames.goaway(frames.STREAM_MASK, Code.NO_ERROR, why))
        self.outbox.control(frames.ping(_DRAIN_PING))
        if not self._reader.has_settings:
            self._finish_draining()
        else:
            self._drain_timer = self._loop.call_later(
                self.limits.drain_timeout_s, self._finish_draining
            )

    def _finish_draining(self) -> None:
        if self.is_final or self._transport is None:
            return
        self.is_final = True
        self.outbox.control(frames.goaway(self.streams.last_id, Code.NO_ERROR))
        self.stream_ended()

    def _fail(self, fault: ConnectionFaultError) -> None:
        """Tell the client why, then close; what it still sends is thrown away."""
        if self._is_refused:
            return
        logger.debug("an HTTP/2 connection ends: %s", fault)
        self._is_refused = self.is_final = True
        self.outbox.control(frames.goaway(self.streams.last_id, fault.code, fault.reason))
        self.streams.abandon()
        self._close()

    def _close(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._flush()
        if self._is_refused and transport.can_write_eof():
            transport.write_eof()  # closing with unread input would take our last words back
            self._loop.call_later(_LINGER_S, transport.abort)
        else:
            transport.close()
            self._see_off(transport.get_write_buffer_size())

    def _see_off(self, unwritten: int) -> None:
        """Closing waits until the client has taken what was written; not for one who takes none."""

        def look_again() -> None:
            if self._transport is not None:
                size = self._transport.get_write_buffer_size()
                if size < unwritten:
                    self._see_off(size)
                else:
                    self.abort()

        if unwritten:
            self._drain_timer = self._loop.call_later(self.limits.drain_timeout_s, look_again)

    def touch(self) -> None:
        """The client may go on only now: it was not silent of its own will."""
        self.last_read_s = self._loop.time()

    def check_progress(self) -> None:
        """Called now and then: give up on a client that has begun something and is silent."""
        is_silent = self._loop.time() - self.last_read_s >= self.limits.stall_timeout_s
        if not is_silent or not self._is_reading:
            return
        if self._reader.is_within_frame or self.streams.has_incomplete:
            self._fail(ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "a message did not go on"))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _long(payload: bytes) -> int:
    if len(payload) != 4:
        raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, f"4 bytes expected, not {len(payload)}")
    return frames.read_long(payload)
