"""Sends cases over connections that stay open, and judges the answers. One asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from dataclasses import dataclass

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2 as pb

from benchmarks.fuzz import grpc_cases
from benchmarks.fuzz.grpc_cases import GrpcCase
from benchmarks.fuzz.http_cases import HttpCase
from benchmarks.fuzz.report import Report, shapeless

ANSWER_TIMEOUT_S = 30.0
_TOLERATED = {501, 503}
"""Not supported, and not available now; the report tells their texts."""
_BLAME = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
_TOLD = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED}
_ENDED_EARLY = "Internal error from Core"
"""grpc.aio's own words where the server ended a stream while the client was still sending."""
_LOST = ("Socket closed", "failed to connect", "GOAWAY", "Stream removed", "Connection reset")


class _BrokenAnswerError(Exception):
    """The server's answer is no HTTP."""


@dataclass(slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class HttpSender:
    """One connection at a time."""

    def __init__(self, port: int, report: Report) -> None:
        self._port = port
        self._report = report
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, case: HttpCase, number: int) -> None:
        told = f"case {number} {case.kind}: {case.data!r}"
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answers = await (self._whole(case) if case.is_whole else self._broken(case))
        except TimeoutError:
            self._report.find("HTTP hang: no answer and no end of the connection", told)
            await self.close()
        except (_BrokenAnswerError, ValueError, asyncio.LimitOverrunError) as error:
            self._report.find(f"HTTP answer that is none: {error!r}", told)
            await self.close()
        else:
            for answer in answers:
                self._judge(answer, told)
            if case.is_whole and not answers:
                self._report.find("HTTP connection closed instead of an answer", told)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._reader = self._writer = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, limit=1 << 20
            )
        return self._reader, self._writer

    async def _whole(self, case: HttpCase) -> list[_Answer]:
        reader, writer = await self._open()
        with contextlib.suppress(ConnectionError):
            writer.write(case.data)
            await writer.drain()
        answer = await _receive(reader, is_head=case.method == "HEAD")
        while answer is not None and answer.status == 100:
            answer = await _receive(reader, is_head=case.method == "HEAD")
        if answer is None or answer.headers.get("connection") == "close":
            await self.close()
        return [] if answer is None else [answer]

    async def _broken(self, case: HttpCase) -> list[_Answer]:
        """A connection of its own: after the request it ends, whatever is still missing."""
        await self.close()
        reader, writer = await self._open()
        answers: list[_Answer] = []
        with contextlib.suppress(ConnectionError):
            writer.write(case.data)
            writer.write_eof()
            if case.method != "HEAD":
                while (answer := await _receive(reader, is_head=False)) is not None:
                    answers.append(answer)
            else:
                while await reader.read(65536):
                    pass
        await self.close()
        return answers

    def _judge(self, answer: _Answer, told: str) -> None:
        self._report.answers[f"HTTP {answer.status}"] += 1
        body, text = answer.body, ""
        coding = answer.headers.get("content-encoding", "")
        if coding == "gzip":
            body = gzip.decompress(body)
        elif coding == "deflate":
            body = zlib.decompress(body)
        if answer.headers.get("content-type") == "application/json" and body:
            try:
                members = json.loads(body)
            except ValueError:
                self._report.find("HTTP body is no JSON", f"{told} -> {body[:200]!r}")
                return
            text = str(members.get("error", "")) if isinstance(members, dict) else ""
        if answer.status >= 500:
            self._report.refusals[f"HTTP {answer.status} {shapeless(text)}"] += 1
        is_blame = answer.status >= 500 and answer.status not in _TOLERATED
        if is_blame or "internal error" in text:
            self._report.find(f"HTTP {answer.status}: {text[:300]}", told)


async def _receive(reader: asyncio.StreamReader, *, is_head: bool) -> _Answer | None:
    """The next answer; None where the connection has ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    lines = head.decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if version != "HTTP/1.1" or not rest[:3].isdigit():
        raise _BrokenAnswerError(lines[0][:100])
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    status = int(rest[:3])
    body = b""
    try:
        if is_head or status == 100:
            pass
        elif headers.get("transfer-encoding") == "chunked":
            body = await _receive_chunks(reader)
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return _Answer(status, headers, body)


async def _receive_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline() or b"0", 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def open_channel(port: int, root_certificate: bytes | None) -> grpc.aio.Channel:
    """With TLS where a certificate is given."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    if root_certificate is None:
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
    credentials = grpc.ssl_channel_credentials(root_certificate)
    return grpc.aio.secure_channel(f"localhost:{port}", credentials, options=options)


class GrpcSender:
    """Raw bytes over one channel."""

    def __init__(self, channel: grpc.aio.Channel, report: Report) -> None:
        self._channel = channel
        self._report = report

    async def send(self, case: GrpcCase, number: int) -> None:
        told = f"case {number} {case.kind}: {grpc_cases.describe(case)}"
        compression = grpc.Compression.Gzip if case.is_compressed else None
        try:
            if case.is_stream:
                await self._stream(case, told, compression)
            else:
                call = self._channel.unary_unary(case.method, None, None)
                await call(
                    b"".join(case.messages[:1]),
                    timeout=ANSWER_TIMEOUT_S,
                    metadata=case.metadata,
                    compression=compression,
                )
            self._report.answers["gRPC OK"] += 1
        except grpc.aio.AioRpcError as error:
            self._judge(error, told)

    async def _stream(
        self, case: GrpcCase, told: str, compression: grpc.Compression | None
    ) -> None:
        call = self._channel.stream_stream(case.method, None, None)(
            iter(case.messages),
            timeout=ANSWER_TIMEOUT_S,
            metadata=case.metadata,
            compression=compression,
        )
        async for data in call:
            text = pb.ModelStreamInferResponse.FromString(data).error_message
            if "internal error" in text:
                self._report.find(f"gRPC stream: {text[:300]}", told)

    def _judge(self, error: grpc.aio.AioRpcError, told: str) -> None:
        code, text = error.code(), error.details() or ""
        if text == _ENDED_EARLY:
            self._report.answers["gRPC ended early"] += 1
            return
        self._report.answers[f"gRPC {code.name}"] += 1
        if code in _TOLD:
            self._report.refusals[f"gRPC {code.name} {shapeless(text)}"] += 1
        is_lost = code is grpc.StatusCode.UNAVAILABLE and any(word in text for word in _LOST)
        if code in _BLAME or is_lost or "internal error" in text:
            self._report.find(f"gRPC {code.name}: {text[:300]}", told)

    async def close(self) -> None:
        await self._channel.close(None)
