"""A raw HTTP/2 client for tests, and an application that does what paths say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from hpack import Decoder, Encoder

from serving.frontends.http2 import frames
from serving.frontends.http2.header_blocks import Header, write_headers
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.server import Http2Server
from serving.frontends.http2.stream import Stream

HEAD = write_headers([(b":status", b"200")])
TRAILERS = write_headers([(b"end", b"1")])


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """Of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[-4:] if self.kind == frames.RST_STREAM else self.tail)

    @property
    def tail(self) -> bytes:
        return self.payload[4:8]

    @property
    def reason(self) -> str:
        return self.payload[8:].decode()


@dataclass(slots=True)
class Answer:
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None


class RawHttp2:
    opened: list[RawHttp2] = []
    """Closed after each test, whatever its outcome."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.others: list[Frame] = []
        """Frames that came while others were waited for."""
        self.opened.append(self)

    @classmethod
    async def connect(
        cls, port: int, settings: dict[int, int] | None = None, **how: Any
    ) -> RawHttp2:
        client = cls(*await asyncio.open_connection("127.0.0.1", port, **how))
        client.send(frames.PREFACE + frames.settings((settings or {}).items()))
        return client

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def frame(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.send(frames.head(len(payload), kind, flags, stream) + payload)

    def block(self, path: str, *more: tuple[str, str]) -> bytes:
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "t")]
        return bytes(self.encoder.encode([*head, *more]))

    def open(self, stream: int, path: str, *more: tuple[str, str], end: bool = False) -> None:
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        self.frame(frames.HEADERS, flags, stream, self.block(path, *more))

    def data(self, stream: int, payload: bytes, *, end: bool = False) -> None:
        self.frame(frames.DATA, frames.END_STREAM if end else 0, stream, payload)

    async def read(self) -> Frame:
        async with asyncio.timeout(10):
            high, low, kind, flags, stream = frames.HEAD.unpack(await self.reader.readexactly(9))
            payload = await self.reader.readexactly(high << 8 | low)
        return Frame(kind, flags, stream, payload)

    async def until(self, kind: int) -> Frame:
        """The next frame of a kind; what comes before it goes to `others`."""
        while True:
            frame = await self.read()
            if frame.kind == kind:
                return frame
            self.others.append(frame)

    async def answer(self, stream: int) -> Answer:
        found = Answer()
        while True:
            frame = await self.read()
            if frame.stream != stream or frame.kind == frames.WINDOW_UPDATE:
                self.others.append(frame)
                continue
            if frame.kind == frames.RST_STREAM:
                found.reset = frame.code
                return found
            if frame.kind == frames.DATA:
                found.body += frame.payload
            elif frame.kind == frames.HEADERS:
                decoded = [(str(k), str(v)) for k, v in self.decoder.decode(frame.payload)]
                if found.headers:
                    found.trailers = dict(decoded)
                else:
                    found.headers = decoded
                    if frame.flags & frames.END_STREAM:
                        found.trailers = dict(decoded)
            if frame.flags & frames.END_STREAM:
                return found

    async def goaway(self) -> Frame:
        """The last GOAWAY, and that the connection is closed after it."""
        found: Frame | None = None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await self.read()
                if frame.kind == frames.GOAWAY:
                    found = frame
        assert found is not None
        return found

    async def sync(self) -> None:
        """Everything sent so far has been dealt with."""
        self.frame(frames.PING, 0, 0, b"12345678")
        while True:
            frame = await self.until(frames.PING)
            if frame.flags & frames.ACK and frame.payload == b"12345678":
                return

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Receiver:
    """/echo, /hold (no answer), /pause, /bytes/<n>, /fail (raises), /direct."""

    def __init__(self, app: Application, stream: Stream, path: str) -> None:
        self.app = app
        self.stream = stream
        self.path = path
        self.received = bytearray()
        self.memory = bytearray(1 << 20 if path == "/direct" else 0)
        self.in_place = 0
        self.drained = 0
        self.is_gone = False
        self.is_ended = False
        if path == "/pause":
            stream.pause()

    def on_data(self, data: memoryview, is_end: bool) -> None:
        self.received += data
        if self.path == "/fail":
            raise RuntimeError("as asked")
        self._go_on(is_end)

    def free_space(self) -> memoryview | None:
        return memoryview(self.memory) if self.path == "/direct" else None

    def on_received(self, count: int, is_end: bool) -> None:
        self.received += self.memory[:count]
        self.in_place += count
        self._go_on(is_end)

    def _go_on(self, is_end: bool) -> None:
        self.is_ended = is_end
        if not is_end or self.path in ("/hold", "/pause"):
            return
        body: bytes = bytes(self.received)
        if self.path.startswith("/bytes/"):
            body = bytes(int(self.path.rpartition("/")[2]))
        self.stream.reply(HEAD, [body], TRAILERS)

    def on_gone(self) -> None:
        self.is_gone = True

    def on_drained(self) -> None:
        self.drained += 1

    @property
    def is_incomplete(self) -> bool:
        return self.path == "/hold" and bool(self.received) and not self.is_ended


class Application:
    def __init__(self) -> None:
        self.heads_read = 0
        self.receivers: list[Receiver] = []

    def read_head(self, headers: list[Header]) -> dict[bytes, bytes]:
        self.heads_read += 1
        return dict(headers)

    def open(self, stream: Stream, head: Any) -> Receiver | None:
        path = head[b":path"].decode()
        if path == "/refuse":
            stream.end(HEAD)
            return None
        if path == "/broken":
            raise RuntimeError("as asked")
        self.receivers.append(Receiver(self, stream, path))
        return self.receivers[-1]


@contextlib.asynccontextmanager
async def serving(limits: Http2Limits | None = None) -> AsyncIterator[Http2Server]:
    server = Http2Server(Application(), limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(0)
