"""What one HTTP/2 connection may ask of the server, and how it is kept alive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeepAliveLimits:
    """With the meaning, and the defaults, that grpc's channel arguments of these names have."""

    time_s: float = 7_200.0
    timeout_s: float = 20.0
    permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_recv_ping_interval_s: float = 300.0
    max_ping_strikes: int = 2
    max_connection_age_s: float = 0.0
    """0: no limit."""
    max_connection_age_grace_s: float | None = None
    """None: calls of a connection that is too old may last as long as they like."""


@dataclass(frozen=True, slots=True)
class Http2Limits:
    max_concurrent_streams: int = 4096
    """Further ones are refused, as in "try again": clients are told and wait by themselves."""
    max_frame_size: int = 4 * 1024**2
    """For the sake of DATA: a tensor of usual size comes in one frame, and is received in place."""
    stream_window: int = 4 * 1024**2
    """Bytes that a stream may send beyond what its receiver takes."""
    connection_window: int = 64 * 1024**2
    """What all streams of a connection may have on its way together."""
    max_header_block: int = 256 * 1024
    """Bytes of one header block on the wire; more ends the connection."""
    max_header_list: int = 256 * 1024
    """Bytes of its headers as RFC 9113 counts them; more ends the connection."""
    announced_header_list: int = 16 * 1024
    """What clients are told to keep to. Those of gRPC do not: that is to cost them one call."""
    max_continuations: int = 16
    preface_timeout_s: float = 20.0
    """For the TLS handshake and the preface with its SETTINGS, each."""
    drain_timeout_s: float = 20.0
    """For a client to hear that it should call no more."""
    write_high_water: int = 4 * 1024**2
    """Bytes that the transport holds before nothing more is written, and nothing more read."""
    max_stream_backlog: int = 64 * 1024**2
    """Bytes of a streamed answer that may wait for a client that does not read them."""
    stall_timeout_s: float = 60.0
    """A message that has begun must go on within this time, at most twice as long."""
    nuisance_burst: int = 10_000
    nuisance_per_s: float = 1_000.0
    """Frames that carry nothing: PING, SETTINGS, PRIORITY, empty DATA, unknown ones."""
    reset_burst: int = 20_000
    resets_per_s: float = 5_000.0
    """Streams that a client opens and takes back. One whose deadlines pass, or who cancels much,
    takes back all that it asks for, and a reset costs no more than a call."""
    keepalive: KeepAliveLimits = KeepAliveLimits()
