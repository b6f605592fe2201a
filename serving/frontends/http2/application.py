"""What an HTTP/2 server is made for: who reads heads, and who takes what a stream carries.

Pure interfaces; everything is called on the loop thread, and must not block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from serving.frontends.http2.header_blocks import Header
    from serving.frontends.http2.stream import Stream


class Receiver(Protocol):
    """The other end of one stream."""

    def on_data(self, data: memoryview, is_end: bool) -> None:
        """Some bytes, valid only during the call. `is_end`: the client sends no more."""

    def free_space(self) -> memoryview | None:
        """Where the bytes that come next may be received in place; None: nowhere."""

    def on_received(self, count: int, is_end: bool) -> None:
        """So many bytes were put into `free_space`."""

    def on_gone(self) -> None:
        """The client took the stream back or has gone: nobody waits for an answer."""

    def on_drained(self) -> None:
        """Nothing that the stream was given to send waits any more."""

    @property
    def is_incomplete(self) -> bool:
        """Something has begun that only more bytes can end."""


class Application(Protocol):
    def read_head(self, headers: list[Header]) -> Any:
        """What a header block means. The outcome is kept and used again for equal blocks."""

    def open(self, stream: Stream, head: Any) -> Receiver | None:
        """A new stream. None: it is answered, nothing that it brings is wanted."""
