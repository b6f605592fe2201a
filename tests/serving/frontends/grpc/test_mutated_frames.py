"""Mutated conversations: nothing that arrives harms the server, or others on it. Seeded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from random import Random

import pytest
from hpack import Encoder

from serving.frontends.http2 import frames
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.grpc.services import GRPC, Methods, RawGrpc, framed, serving

CONVERSATIONS = 1200
METHODS = ("Echo", "Hold", "Fail", "Talk", "Nope")


def conversation(random: Random) -> list[bytes]:
    """Frames of some calls, well formed, one behind the other or interleaved."""
    encoder = Encoder()
    encoder.header_table_size = random.choice((0, 4096))
    out: list[bytes] = [frames.PREFACE + frames.settings([(4, random.choice((0, 100, 1 << 20)))])]
    for number in range(1, 2 * random.randint(1, 6), 2):
        path = f"/t/{random.choice(METHODS)}"
        more = random.choice(((), (("grpc-timeout", "10m"),), (("grpc-encoding", "gzip"),)))
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), *GRPC, *more]
        block = encoder.encode(head)
        out.append(frames.head(len(block), frames.HEADERS, frames.END_HEADERS, number) + block)
        text = framed(random.randbytes(random.choice((0, 3, 200))), is_compressed=bool(more))
        end = random.choice((0, frames.END_STREAM))
        out.append(frames.head(len(text), frames.DATA, end, number) + text)
        out.append(
            random.choice(
                (
                    frames.window_update(number, 50),
                    frames.window_update(0, 1 << 20),
                    frames.ping(b"12345678"),
                    frames.SETTINGS_ACK,
                    frames.settings([(5, 20_000)]),
                    frames.reset(number, frames.Code.CANCEL),
                    frames.head(5, frames.PRIORITY, 0, number) + bytes(5),
                )
            )
        )
    return out


def mutated(random: Random, parts: list[bytes]) -> bytes:
    match random.randrange(5):
        case 0:
            parts[1:] = random.sample(parts[1:], len(parts) - 1)
        case 1:
            parts.insert(random.randint(1, len(parts)), random.choice(parts))
        case 2:
            del parts[random.randrange(len(parts))]
        case 3:
            parts.insert(random.randint(1, len(parts)), random.randbytes(random.randint(1, 60)))
    wire = bytearray(b"".join(parts))
    for _ in range(random.choice((0, 1, 1, 3, 10))):
        wire[random.randrange(24, len(wire))] = random.randrange(256)
    return bytes(wire[: random.randint(30, len(wire))] if random.random() < 0.3 else wire)


async def send(server: Http2Server, wire: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with contextlib.suppress(ConnectionError):
        writer.write(wire)
        writer.write_eof()
        async with asyncio.timeout(10):
            while await reader.read(1 << 16):
                pass
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_mutated_frames_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    methods = Methods()
    async with serving(methods, limits=Http2Limits(stall_timeout_s=0.5)) as server:
        witness = await RawGrpc.connect(server.port)
        assert isinstance(witness, RawGrpc)
        for start in range(0, CONVERSATIONS, 40):
            wires = []
            for number in range(start, start + 40):
                random = Random(f"frames {number}")
                wires.append(mutated(random, conversation(random)))
            await asyncio.gather(*(send(server, wire) for wire in wires))
            witness.call(2 * start + 1, "Echo")
            witness.message(2 * start + 1, b"still there")
            assert (await witness.answer(2 * start + 1)).body == framed(b"still there")
        assert len(server.connections) == 1
        for number, receiver in enumerate(methods.held):
            assert not receiver.is_open, number
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == [], [record.getMessage() for record in told]
