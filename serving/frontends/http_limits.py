"""What one HTTP connection may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    max_body_size: int = 2 * 1024**3
    max_head_size: int = 64 * 1024
    max_header_count: int = 128
    max_chunk_count: int = 65_536
    max_stream_backlog: int = 64 * 1024 * 1024
    """Bytes of a streamed answer that may wait for a client that does not read."""
    max_pipelined: int = 64
    """Requests of one connection in progress; beyond that it is not read."""
    stall_timeout_s: float = 60.0
    """A request's head must be complete, and its body go on, within this time, at most twice as
    long. A client that sends a byte now and then does not keep a connection."""
    least_progress: int = 1024
    """Bytes of a body that must come in that time."""
