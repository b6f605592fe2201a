"""Heads of requests by their bytes: a client sends the same one again and again.

Equal bytes mean an equal head, so that a message whose head has been parsed before needs no parser.
Only plain heads are kept: HTTP/1.1 that keeps the connection, the size of the body in
Content-Length, nothing expected and nothing upgraded. Loop thread.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEADS = 512
MAX_HEAD_SIZE = 2048
"""Longer heads are parsed each time."""
MAX_BODY_SIZE = 32 * 1024
_NOT_PLAIN = (b"transfer-encoding", b"expect", b"upgrade", b"content-encoding")
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class KnownHead:
    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    """As `HttpRequest.headers`; shared by all requests with this head, nobody changes it."""
    raw_headers: list[tuple[bytes, bytes]]
    body_size: int


class KnownHeads:
    """Of one server. `buffer` is what its connections read into."""

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._heads: dict[bytes, KnownHead] = {}

    def find(self, start: int, end: int) -> tuple[bytes, KnownHead | None]:
        """The bytes of a head that may begin at `start`, empty where none is there whole; and what
        it says, if that is known.
        """
        limit = start + MAX_HEAD_SIZE
        stop = self._buffer.find(_END, start, end if end < limit else limit)
        text = b"" if stop < 0 else bytes(self._buffer[start : stop + 4])
        return text, self._heads.get(text)

    def keep(self, text: bytes, head: KnownHead) -> None:
        """`text` as from `find` when the parser began to read `head`: HTTP/1.1, keep-alive."""
        lines = len(head.raw_headers) + 2
        # A parser that forgives bare line feeds, or an empty line before the request, would have
        # found the end of the head elsewhere.
        if text.count(b"\n") != lines or text.count(b"\r\n") != lines:
            return
        if head.body_size > MAX_BODY_SIZE or any(name in head.headers for name in _NOT_PLAIN):
            return
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()  # heads that never come again must not keep the others out
        self._heads[text] = head
