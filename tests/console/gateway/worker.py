"""A worker's HTTP port for tests: a real server that remembers what it got."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httptools


@dataclass
class Got:
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class WorkerPort:
    """`answer` says how it behaves: echo, chunked, hang, hang_up, garbage, cut_off."""

    def __init__(self, answer: str = "echo") -> None:
        self.answer = answer
        self.got: list[Got] = []
        self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.received = asyncio.Event()
        self.abandoned = asyncio.Event()

    async def __aenter__(self) -> WorkerPort:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *details: object) -> None:
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while got := await self._read(reader):
                self.got.append(got)
                self.received.set()
                if not await self._reply(got, reader, writer):
                    break
        except asyncio.CancelledError:
            # The test is over.
            return
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Got | None:
        got = Got()
        done = False

        class Target:
            def on_url(self, url: bytes) -> None:
                got.path = url.decode()

            def on_header(self, name: bytes, value: bytes) -> None:
                got.headers[name.decode().lower()] = value.decode()

            def on_body(self, piece: bytes) -> None:
                got.body += piece

            def on_message_complete(self) -> None:
                nonlocal done
                done = True

        parser = httptools.HttpRequestParser(Target())
        while not done:
            data = await reader.read(65536)
            if not data:
                return None
            parser.feed_data(data)
        got.method = parser.get_method().decode()
        return got

    async def _reply(
        self, got: Got, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if self.answer == "hang":
            await reader.read()
            self.abandoned.set()
            return False
        if self.answer == "hang_up":
            return False
        if self.answer == "garbage":
            writer.write(b"hello there\r\n\r\n")
            return False
        if self.answer == "cut_off":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
            await writer.drain()
            return False
        if self.answer == "chunked":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")
        else:
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(got.body)}\r\nset-cookie: a=b\r\n\r\n"
            writer.write(head.encode() + got.body)
        await writer.drain()
        # "once": answers and then closes, as a worker does with connections that idle too long.
        return self.answer != "once"
