"""Whether the client is still there, whether it asks too often, and whether its time is over.

With the rules of grpc's keep-alive: gRFC A8 and A9, and the channel arguments that
`KeepAliveLimits` has. Timers on the loop; loop thread.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code, ConnectionFaultError

if TYPE_CHECKING:
    from serving.frontends.http2.connection import Http2Connection

_IDLE_PING_INTERVAL_S = 7_200.0
"""What a client without calls may do, where that is not permitted (gRFC A8)."""
_JITTER = 0.1
OUR_PING = b"conch\x00\x00\x01"


class KeepAlive:
    """Of one connection."""

    def __init__(self, connection: Http2Connection) -> None:
        self._connection = connection
        self._limits = connection.limits.keepalive
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        self._idle: asyncio.TimerHandle | None = None
        self._strikes = 0
        self._last_ping_s = float("-inf")
        self._pings_without_data = 0
        self._awaits_pong = False

    def start(self) -> None:
        limits = self._limits
        self._arm(limits.time_s)
        if limits.max_connection_age_s:
            # Spread, so that connections that were made together do not end together.
            age_s = limits.max_connection_age_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
            self._timers.append(self._loop.call_later(age_s, self._on_old))

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._idle is not None:
            self._idle.cancel()

    def on_ping(self) -> bool:
        """True for one that comes early: clients ask after data, and now and then without.

        Raises ConnectionFaultError for a client that pings too often (too_many_pings).
        """
        limits, connection = self._limits, self._connection
        if connection.outbox.has_answered:
            connection.outbox.has_answered = False
            self._forgive()
        interval_s = limits.min_recv_ping_interval_s
        if not limits.permit_without_calls and not connection.streams.open:
            interval_s = _IDLE_PING_INTERVAL_S
        now_s = self._loop.time()
        is_early = now_s < self._last_ping_s + interval_s
        self._last_ping_s = now_s
        if is_early:
            self._strikes += 1
            if self._strikes > limits.max_ping_strikes and limits.max_ping_strikes:
                raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too_many_pings")
        return is_early

    def _forgive(self) -> None:
        self._strikes = 0
        self._last_ping_s = float("-inf")
        self._pings_without_data = 0

    # --- our own pings ---------------------------------------------------------------------

    def _arm(self, delay_s: float) -> None:
        self._idle = self._loop.call_later(delay_s, self._on_idle)

    def _on_idle(self) -> None:
        connection, limits = self._connection, self._limits
        quiet_s = self._loop.time() - connection.last_read_s
        if quiet_s < limits.time_s:
            self._arm(limits.time_s - quiet_s)
            return
        if connection.outbox.has_answered:
            connection.outbox.has_answered = False
            self._forgive()
        is_wanted = connection.streams.open or limits.permit_without_calls
        is_allowed = self._pings_without_data < (limits.max_pings_without_data or float("inf"))
        if not is_wanted or not is_allowed:
            self._arm(limits.time_s)
            return
        self._pings_without_data += 1
        self._awaits_pong = True
        connection.outbox.control(frames.ping(OUR_PING))
        self._idle = self._loop.call_later(limits.timeout_s, self._on_silence, self._loop.time())

    def on_pong(self) -> None:
        if self._awaits_pong and self._idle is not None:
            self._awaits_pong = False
            self._idle.cancel()
            self._arm(self._limits.time_s)

    def _on_silence(self, since_s: float) -> None:
        self._awaits_pong = False
        if self._connection.last_read_s > since_s:
            self._arm(self._limits.time_s)
        else:
            self._connection.abort()

    # --- age -------------------------------------------------------------------------------

    def _on_old(self) -> None:
        self._connection.drain("max_age")
        grace_s = self._limits.max_connection_age_grace_s
        if grace_s is not None:
            self._timers.append(self._loop.call_later(grace_s, self._connection.abort))
