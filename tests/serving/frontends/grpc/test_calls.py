"""Calls byte by byte: what no gRPC library would send, and what every one does."""

from __future__ import annotations

import base64
import gzip
import struct
from urllib.parse import unquote

import pytest

from serving.errors import InvalidArgumentError
from serving.frontends import grpc_wire
from serving.frontends.grpc_call import check_size
from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code
from serving.frontends.http2.server import Http2Server
from serving.options import GrpcOptions
from serving.protocol.status import GrpcStatus
from serving.restrictions import Restriction
from tests.serving.frontends.grpc.services import (
    GRPC,
    Methods,
    RawGrpc,
    framed,
    serving,
    status_of,
)
from tests.waiting import wait_until


async def test_a_call_is_answered(client: RawGrpc) -> None:
    client.call(1, "Echo")
    client.message(1, b"hello")

    answer = await client.answer(1)

    assert answer.headers == [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-accept-encoding", "identity, deflate, gzip"),
    ]
    assert answer.body == framed(b"hello")
    assert answer.trailers == {"grpc-status": "0"}


@pytest.mark.parametrize("size", [1, 3, 5, 6, 50_000])
async def test_a_message_may_be_cut_anywhere(client: RawGrpc, size: int) -> None:
    text = bytes(range(256)) * 200
    wire = framed(text) if size > 6 else framed(text[:20])
    client.call(1, "Echo")
    for at in range(0, len(wire), size):
        client.data(1, wire[at : at + size])
    client.data(1, b"", end=True)

    assert (await client.answer(1)).body == wire


async def test_an_empty_message_is_one(client: RawGrpc) -> None:
    client.call(1, "Echo")
    client.message(1, b"")
    assert (await client.answer(1)).body == framed(b"")


async def test_calls_that_do_not_bring_one_message_are_refused(client: RawGrpc) -> None:
    client.open(1, "/t/Echo", *GRPC, end=True)
    assert (await client.status(1))[0] == GrpcStatus.INVALID_ARGUMENT
    client.call(3, "Echo")
    client.data(3, framed(b"abc")[:-1], end=True)
    assert (await client.status(3))[0] == GrpcStatus.INVALID_ARGUMENT
    client.call(5, "Echo")
    client.data(5, framed(b"a") + framed(b"b"), end=True)
    assert (await client.status(5))[0] == GrpcStatus.UNIMPLEMENTED


@pytest.mark.parametrize("method", ["Echo", "Talk"])
async def test_a_message_above_the_limit_is_refused_at_its_prefix(
    client: RawGrpc, method: str
) -> None:
    """GRPC-047."""
    client.call(1, method)
    client.data(1, struct.pack(">BL", 0, 2**31))
    code, text = await client.status(1)
    assert code == GrpcStatus.RESOURCE_EXHAUSTED
    assert unquote(text) == "Received message larger than max (2147483648 vs. 2147483647)"


async def test_an_announced_message_takes_no_memory_before_it_comes(client: RawGrpc) -> None:
    before = _resident_kib()
    for number in range(1, 41, 2):
        client.call(number, "Echo")
        client.data(number, struct.pack(">BL", 0, 2**30) + bytes(1000))
    await client.sync()
    assert _resident_kib() - before < 100_000


def _resident_kib() -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ([(":method", "GET"), (":scheme", "http"), (":path", "/t/Echo"), *GRPC], "405"),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/t/Echo")], "415"),
        (
            [
                *((":method", "POST"), (":scheme", "http"), (":path", "/t/Echo")),
                ("content-type", "application/grpcx"),
            ],
            "415",
        ),
    ],
)
async def test_what_is_no_grpc_gets_a_status_of_http(
    client: RawGrpc, head: list[tuple[str, str]], status: str
) -> None:
    client.frame(frames.HEADERS, 5, 1, client.encoder.encode(head))
    assert dict((await client.answer(1)).headers)[":status"] == status


POST = [(":method", "POST"), (":scheme", "http"), (":path", "/t/Echo")]


@pytest.mark.parametrize(
    "head",
    [
        [(":method", "POST"), (":path", "/t/Echo"), *GRPC],
        [*POST, (":path", "/t/Echo"), *GRPC],
        [*POST, (":status", "200"), *GRPC],
        [*GRPC, *POST],
        [*POST, *GRPC, ("Upper", "1")],
        [*POST, *GRPC, ("connection", "close")],
        [*POST, *GRPC, ("x", "a\nb")],
        [*POST, *GRPC, ("", "a")],
    ],
)
async def test_a_malformed_head_resets_the_stream(
    client: RawGrpc, head: list[tuple[str, str]]
) -> None:
    client.frame(frames.HEADERS, 5, 1, client.encoder.encode(head))
    assert (await client.answer(1)).reset == Code.PROTOCOL_ERROR
    client.call(3, "Echo")
    client.message(3, b"x")
    assert (await client.status(3))[0] == 0


@pytest.mark.parametrize(
    ("method", "more", "code", "words"),
    [
        ("Nope", (), GrpcStatus.UNIMPLEMENTED, "Method not found"),
        ("Echo", (("grpc-encoding", "snappy"),), GrpcStatus.UNIMPLEMENTED, "snappy"),
        ("Echo", (("grpc-timeout", "5"),), GrpcStatus.INVALID_ARGUMENT, "grpc-timeout"),
        ("Echo", (("grpc-timeout", ""),), GrpcStatus.INVALID_ARGUMENT, "grpc-timeout"),
        ("Echo", (("grpc-timeout", "123456789S"),), GrpcStatus.INVALID_ARGUMENT, "8 digits"),
        ("Echo", (("x-bin", "!!"),), GrpcStatus.INVALID_ARGUMENT, "base64"),
        ("Echo", (("x", "y" * 20_000),), GrpcStatus.RESOURCE_EXHAUSTED, "metadata size"),
    ],
)
async def test_a_call_that_cannot_be_is_refused_with_trailers_alone(
    client: RawGrpc, method: str, more: tuple[tuple[str, str], ...], code: GrpcStatus, words: str
) -> None:
    block = client.block(f"/t/{method}", *GRPC, *more)
    client.frame(frames.HEADERS, 0, 1, block[:10_000])
    client.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[10_000:])
    client.message(1, b"x")

    answer = await client.answer(1)

    assert answer.headers[0] == (":status", "200")
    assert answer.body == b""
    assert status_of(answer)[0] == code
    assert words in unquote(status_of(answer)[1])


async def test_an_error_travels_with_its_text(client: RawGrpc) -> None:
    client.call(1, "Fail")
    client.message(1, "50 % größer\n".encode())

    code, text = await client.status(1)

    assert code == GrpcStatus.NOT_FOUND
    assert text == "50 %25 gr%C3%B6%C3%9Fer%0A"


async def test_a_crash_is_logged_and_not_told(
    client: RawGrpc, caplog: pytest.LogCaptureFixture
) -> None:
    client.call(1, "Crash")
    client.message(1, b"x")
    code, text = await client.status(1)
    assert code == GrpcStatus.INTERNAL
    assert unquote(text) == "internal error, see the server's log"
    assert "as asked" in caplog.text


async def test_metadata_reaches_the_method(client: RawGrpc, methods: Methods) -> None:
    binary = base64.b64encode(b"\0\xff").decode().rstrip("=")
    client.call(1, "Echo", ("x", "1"), ("x", "2"), ("y-bin", binary), ("user-agent", "me"))
    client.message(1, b"x")
    await client.answer(1)
    (head,) = methods.heads
    assert head.metadata == (("x", "1"), ("x", "2"), ("y-bin", b"\0\xff"), ("user-agent", "me"))
    assert head.value("x") == "2"
    assert head.value("y-bin") == ""


async def test_a_deadline_cancels_and_is_told(client: RawGrpc, methods: Methods) -> None:
    client.call(1, "Hold", ("grpc-timeout", "20m"))
    client.message(1, b"x")
    assert await client.status(1) == (GrpcStatus.DEADLINE_EXCEEDED, "Deadline Exceeded")
    assert methods.cancelled == ["Hold"]
    methods.held[0].reply([b"late"])  # harmless


async def test_a_deadline_holds_for_a_message_that_does_not_come(client: RawGrpc) -> None:
    client.call(1, "Echo", ("grpc-timeout", "20000u"))
    assert (await client.status(1))[0] == GrpcStatus.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1H", 3600),
        ("2M", 120),
        ("3S", 3),
        ("4m", 0.004),
        ("5u", 5e-6),
        ("6n", 6e-9),
        ("99999999S", 99_999_999),
        ("1", None),
        ("-1S", None),
        ("1s", None),
        ("\u0661S", None),
    ],
)
def test_timeouts(text: str, seconds: float | None) -> None:
    found = grpc_wire.read_timeout(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


async def test_a_reset_and_a_disconnect_cancel(client: RawGrpc, methods: Methods) -> None:
    """GRPC-036."""
    for number, method in ((1, "Hold"), (3, "Hold"), (5, "Talk")):
        client.call(number, method)
        client.message(number, b"x", end=method == "Hold")
    client.frame(frames.RST_STREAM, 0, 1, struct.pack(">L", Code.CANCEL))
    await client.sync()
    assert methods.cancelled == ["Hold"]
    await client.close()
    await wait_until(lambda: methods.cancelled == ["Hold", "Hold", "Talk"])


async def test_restricted_methods_need_their_metadata(methods: Methods) -> None:
    """GRPC-046, GRPC-A09."""
    options = GrpcOptions(restricted=(Restriction(("inference",), "key", "value"),))
    methods.names["Echo"] = "ModelInfer"
    async with serving(methods, options) as server:
        client = await RawGrpc.connect(server.port)
        assert isinstance(client, RawGrpc)
        client.call(1, "Echo")
        client.message(1, b"x")
        code, text = await client.status(1)
        assert code == GrpcStatus.UNAVAILABLE
        assert "expecting header 'triton-grpc-protocol-key'" in text
        client.call(3, "Echo", ("triton-grpc-protocol-key", "value"))
        client.message(3, b"x")
        assert (await client.status(3))[0] == 0


# --- streams -----------------------------------------------------------------------------------


async def test_messages_of_a_stream_are_answered_in_order(client: RawGrpc) -> None:
    client.call(1, "Talk")
    client.data(1, framed(b"a") + framed(b"b") + framed(b"c")[:4])
    client.data(1, framed(b"c")[4:] + framed(b""), end=True)

    answer = await client.answer(1)

    assert answer.body == framed(b"a") + framed(b"b") + framed(b"c") + framed(b"")
    assert answer.trailers == {"grpc-status": "0"}


async def test_a_stream_without_messages_is_answered_with_none(client: RawGrpc) -> None:
    client.open(1, "/t/Talk", *GRPC, end=True)
    answer = await client.answer(1)
    assert (answer.body, answer.trailers) == (b"", {"grpc-status": "0"})


async def test_a_stream_may_end_with_an_error_after_answers(client: RawGrpc) -> None:
    client.call(1, "Talk")
    client.data(1, framed(b"a") + framed(b"stop") + framed(b"b"))
    answer = await client.answer(1)
    assert answer.body == framed(b"a")
    assert answer.trailers == {"grpc-status": "5", "grpc-message": "as asked"}
    assert (await client.until(frames.RST_STREAM)).code == Code.NO_ERROR


async def test_a_stream_that_ends_within_a_message_is_told_so(
    client: RawGrpc, methods: Methods
) -> None:
    client.call(1, "Talk")
    client.data(1, framed(b"abc")[:6], end=True)
    assert (await client.status(1))[0] == GrpcStatus.INVALID_ARGUMENT
    assert methods.cancelled == ["Talk"]


async def test_a_stream_that_is_paused_hands_nothing_over_until_it_goes_on(
    client: RawGrpc, methods: Methods
) -> None:
    client.call(1, "Talk")
    client.data(1, framed(b"pause") + framed(b"a"))
    client.data(1, framed(b"b"), end=True)
    await client.sync()
    (talk,) = methods.talks
    assert talk.messages == [b"pause"]

    talk.call.resume()

    assert (await client.answer(1)).body == framed(b"a") + framed(b"b")


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_a_stream_whose_handler_crashes_ends_and_is_cancelled(
    client: RawGrpc, methods: Methods, caplog: pytest.LogCaptureFixture, is_compressed: bool
) -> None:
    client.call(1, "Talk", ("grpc-encoding", "gzip"))
    text = gzip.compress(b"crash") if is_compressed else b"crash"
    client.message(1, text, end=False, is_compressed=is_compressed)
    code, told = await client.status(1)
    assert code == GrpcStatus.INTERNAL
    assert "as asked" not in told
    assert "as asked" in caplog.text
    assert methods.cancelled == ["Talk"]


def test_a_response_above_the_limit_is_refused() -> None:
    """GRPC-A11. It is not there: only its length is."""

    class Long(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(InvalidArgumentError, match="2147483648 bytes"):
        check_size([Long()])


async def test_a_deadline_does_not_wait_for_a_client_that_takes_no_answers(
    server: Http2Server, methods: Methods
) -> None:
    client = await RawGrpc.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 10})
    assert isinstance(client, RawGrpc)
    client.call(1, "Talk", ("grpc-timeout", "50m"))
    client.message(1, bytes(1000), end=False)

    answer = await client.answer(1)

    assert status_of(answer)[0] == GrpcStatus.DEADLINE_EXCEEDED
    assert len(answer.body) == 10
    assert methods.cancelled == ["Talk"]
    assert methods.talks[0].call.unsent_bytes == 0
