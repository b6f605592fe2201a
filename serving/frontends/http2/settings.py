"""What the client's SETTINGS change on our side. Loop thread."""

from __future__ import annotations

from collections.abc import Iterable

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code, ConnectionFaultError
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.outbox import Outbox
from serving.frontends.http2.stream import Stream

_NO_TABLE = b"\x20"
"""A header block begins with it where the dynamic table is resized to 0."""


def greeting(limits: Http2Limits) -> bytes:
    """Our preface: SETTINGS, and the window of the connection."""
    values = (
        # Equal blocks must mean equal headers, see header_blocks.
        (frames.HEADER_TABLE_SIZE, 0),
        (frames.MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
        (frames.INITIAL_WINDOW_SIZE, limits.stream_window),
        (frames.MAX_FRAME_SIZE, limits.max_frame_size),
        (frames.MAX_HEADER_LIST_SIZE, limits.announced_header_list),
    )
    more = limits.connection_window - frames.DEFAULT_WINDOW
    return frames.settings(values) + frames.window_update(0, more)


def apply_settings(
    values: Iterable[tuple[int, int]], outbox: Outbox, streams: Iterable[Stream]
) -> None:
    """Raises ConnectionFaultError for values that no setting can have."""
    window = outbox.initial_window
    for name, value in values:
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > frames.MOST_WINDOW:
                raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
            window = value
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.LEAST_FRAME_SIZE <= value <= frames.MOST_FRAME_SIZE:
                raise ConnectionFaultError(Code.PROTOCOL_ERROR, f"frames of {value} bytes")
            outbox.max_frame_size = value
        elif name == frames.ENABLE_PUSH and value > 1:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        elif name == frames.HEADER_TABLE_SIZE and value < frames.DEFAULT_TABLE_SIZE:
            # Ours stays empty, but it has to be said that it is small enough (RFC 7541, 4.2).
            outbox.table_update = _NO_TABLE
    if window != outbox.initial_window:
        _widen_all(window, outbox, streams)
    outbox.pump()


def _widen_all(window: int, outbox: Outbox, streams: Iterable[Stream]) -> None:
    """Once for a frame, whatever it says on the way: a client may have thousands of streams."""
    difference = window - outbox.initial_window
    outbox.initial_window = window
    for stream in streams:
        stream.send_window += difference  # it may become negative
        if stream.send_window > frames.MOST_WINDOW:
            raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, "a window overflows")
        outbox.enqueue(stream)
