"""The HTTP adapter by itself: framing, order, limits, and clients that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random

import pytest

from serving.frontends.http_limits import HttpLimits
from serving.frontends.http_messages import (
    Cancel,
    HttpRequest,
    HttpResponse,
    Reply,
    ResponseStream,
    text_error,
)
from serving.frontends.http_server import HttpServer
from tests.serving.frontends.raw_http import RawClient, message
from tests.waiting import wait_until

LIMITS = HttpLimits(max_body_size=4_000_000, max_head_size=4000, max_header_count=20)


@dataclass
class EchoRoutes:
    """/echo answers at once with the body, /hold when told, /stream in pieces, /fail raises."""

    requests: list[HttpRequest] = field(default_factory=list)
    held: list[tuple[HttpRequest, Reply]] = field(default_factory=list)
    streams: list[ResponseStream] = field(default_factory=list)
    cancelled: int = 0

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        self.requests.append(request)
        if request.path == b"/fail":
            raise RuntimeError("a bug")
        if request.path == b"/stream":
            self.streams.append(reply.start_stream(HttpResponse(200, [], b"text/plain")))
            return self._count_cancel
        if request.path.startswith(b"/hold"):
            self.held.append((request, reply))
            return self._count_cancel
        reply(HttpResponse(200, [b"<", request.body, b">"], b"text/plain"))
        return None

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        return text_error(400, "refused early") if request.path == b"/refuse" else None

    def _count_cancel(self) -> None:
        self.cancelled += 1

    def release(self, index: int = 0) -> None:
        request, reply = self.held.pop(index)
        reply(HttpResponse(200, [request.target], b"text/plain"))


@pytest.fixture
def routes() -> EchoRoutes:
    return EchoRoutes()


@pytest.fixture
async def server(routes: EchoRoutes) -> AsyncIterator[HttpServer]:
    server = HttpServer(routes, LIMITS)
    await server.start("127.0.0.1", 0)
    yield server
    await server.stop(0)


@pytest.fixture
async def client(server: HttpServer) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(server.port)
    yield client
    await client.close()


async def test_a_connection_is_kept_for_the_next_request(client: RawClient) -> None:
    for body in (b"", b"a", b"bb"):
        response = await client.request("POST", "/echo", body)
        assert (response.status, response.body) == (200, b"<" + body + b">")


async def test_method_target_and_headers_arrive(client: RawClient, routes: EchoRoutes) -> None:
    await client.request("PATCH", "/echo?x=1", b"", X_Mixed_Case="V", x_two="2")

    (request,) = routes.requests
    assert (request.method, request.path, request.target) == (b"PATCH", b"/echo", b"/echo?x=1")
    assert request.headers[b"x-mixed-case"] == b"V"
    assert (b"X-Mixed-Case", b"V") in request.raw_headers


@pytest.mark.parametrize("size", [1, 40_000, 300_000, 3_000_000])
async def test_bodies_of_any_size_arrive_unchanged(client: RawClient, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"." * (size % 256)

    for _ in range(2):
        response = await client.request("POST", "/echo", body)
        assert response.body == b"<" + body + b">"


async def test_a_body_that_comes_byte_by_byte_arrives(client: RawClient) -> None:
    for byte in message("POST", "/echo", b"abc"):
        await client.send(bytes([byte]))
        await asyncio.sleep(0)

    assert (await client.receive()).body == b"<abc>"


async def test_requests_behind_a_large_body_are_not_lost(client: RawClient) -> None:
    body = b"x" * 500_000

    await client.send(message("POST", "/echo", body) + message("POST", "/echo", b"next"))

    assert len((await client.receive()).body) == len(body) + 2
    assert (await client.receive()).body == b"<next>"


async def test_chunked_bodies_are_put_together(client: RawClient) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    await client.send(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    assert (await client.receive()).body == b"<abcde>"


async def test_pipelined_requests_are_answered_in_their_order(
    client: RawClient, routes: EchoRoutes
) -> None:
    await client.send(message("GET", "/hold1") + message("GET", "/hold2") + message("GET", "/echo"))
    await wait_until(lambda: len(routes.held) == 2)

    routes.release(1)
    routes.release(0)

    assert [(await client.receive()).body for _ in range(3)] == [b"/hold1", b"/hold2", b"<>"]


async def test_a_connection_with_many_open_requests_is_not_read_further(
    client: RawClient, routes: EchoRoutes
) -> None:
    count = LIMITS.max_pipelined + 10
    await client.send(message("GET", "/hold") * LIMITS.max_pipelined)
    await wait_until(lambda: len(routes.held) == LIMITS.max_pipelined)
    await client.send(message("GET", "/hold") * 10)
    routes.release()

    await wait_until(lambda: len(routes.requests) == count)
    while routes.held:
        routes.release()
    for _ in range(count):
        assert (await client.receive()).status == 200


async def test_expect_continue_is_answered_before_the_body(client: RawClient) -> None:
    head, _, _ = message("POST", "/echo", b"abc", Expect="100-continue").partition(b"\r\n\r\n")
    await client.send(head + b"\r\n\r\n")

    assert (await client.receive()).status == 100
    await client.send(b"abc")
    assert (await client.receive()).body == b"<abc>"


async def test_expect_continue_waits_for_the_answers_before_it(
    client: RawClient, routes: EchoRoutes
) -> None:
    head, _, _ = message("POST", "/echo", b"abc", Expect="100-continue").partition(b"\r\n\r\n")
    await client.send(message("GET", "/hold") + head + b"\r\n\r\n")
    await wait_until(lambda: routes.held)
    routes.release()

    assert [(await client.receive()).status for _ in range(2)] == [200, 100]
    await client.send(b"abc")
    assert (await client.receive()).body == b"<abc>"


async def test_connection_close_is_honoured(client: RawClient) -> None:
    response = await client.request("POST", "/echo", b"x" * 100_000, Connection="close")

    assert response.headers["connection"] == "close"
    assert await client.is_closed()


@pytest.mark.parametrize(("header", "stays"), [("", False), ("Connection: keep-alive\r\n", True)])
async def test_http_1_0_closes_unless_asked(client: RawClient, header: str, stays: bool) -> None:
    await client.send(f"GET /echo HTTP/1.0\r\n{header}\r\n".encode())

    response = await client.receive()

    assert response.headers["connection"] == ("keep-alive" if stays else "close")
    if not stays:
        assert await client.is_closed()


async def test_head_has_no_body(client: RawClient) -> None:
    response = await client.request("HEAD", "/echo")

    assert response.headers["content-length"] == "2"
    assert (await client.request("GET", "/echo")).body == b"<>"


async def test_a_client_that_leaves_cancels_what_it_asked_for(
    client: RawClient, routes: EchoRoutes
) -> None:
    await client.send(message("GET", "/hold") * 2)
    await wait_until(lambda: len(routes.held) == 2)

    await client.close()

    await wait_until(lambda: routes.cancelled == 2)
    routes.release()  # an answer that nobody waits for is dropped


async def test_streamed_answers_are_chunked(client: RawClient, routes: EchoRoutes) -> None:
    await client.send(message("GET", "/stream") + message("GET", "/echo"))
    await wait_until(lambda: routes.streams)
    routes.streams[0].write(b"one ")
    routes.streams[0].write(b"two")
    routes.streams[0].end()

    first, second = await client.receive(), await client.receive()

    assert (first.headers["transfer-encoding"], first.body) == ("chunked", b"one two")
    assert second.body == b"<>"


async def test_a_stream_ends_quietly_when_its_client_has_gone(
    client: RawClient, routes: EchoRoutes
) -> None:
    await client.send(message("GET", "/stream"))
    await wait_until(lambda: routes.streams)
    await client.close()
    await wait_until(lambda: routes.cancelled == 1)

    routes.streams[0].write(b"late")
    routes.streams[0].end()


async def test_a_bug_in_a_route_is_a_500_and_the_connection_lives_on(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await client.request("GET", "/fail")).status == 500
    assert "a bug" in caplog.text
    assert (await client.request("GET", "/echo")).status == 200


async def test_a_client_that_does_not_read_its_stream_is_cut_off(routes: EchoRoutes) -> None:
    server = HttpServer(routes, HttpLimits(max_stream_backlog=1_000_000))
    await server.start("127.0.0.1", 0)
    client = await RawClient.connect(server.port)
    await client.send(message("GET", "/stream"))
    await wait_until(lambda: routes.streams)

    for _ in range(400):
        routes.streams[0].write(b"x" * 100_000)
        await asyncio.sleep(0)

    await wait_until(lambda: routes.cancelled == 1)
    await client.close()
    await server.stop(0)


async def test_damaged_requests_never_stop_the_server(server: HttpServer) -> None:
    random = Random(3)
    whole = message("POST", "/echo", b"abc", X_Header="value") * 2
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 6)):
            data[random.randrange(len(data))] = random.randrange(256)
        client = await RawClient.connect(server.port)
        await client.send(bytes(data[: random.randrange(1, len(data))]))
        await client.close()

    client = await RawClient.connect(server.port)
    assert (await client.request("GET", "/echo")).status == 200
    await client.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (
            b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            400,
        ),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 4000001\r\n\r\n", 413),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 9000, 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 30 + b"\r\n", 431),
        (b"POST /refuse HTTP/1.1\r\nContent-Length: 3999999\r\n\r\n", 400),
    ],
)
async def test_what_cannot_be_read_is_answered_and_closed(
    client: RawClient, data: bytes, status: int
) -> None:
    await client.send(data)

    response = await client.receive()

    assert response.status == status
    assert list(response.json) == ["error"]
    assert await client.is_closed()


async def test_a_refused_client_that_keeps_sending_still_sees_why(client: RawClient) -> None:
    await client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 1_000_000)

    assert (await client.receive()).status == 413


async def test_a_chunked_body_is_bounded_in_size_and_chunks(
    server: HttpServer, client: RawClient
) -> None:
    head = b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    await client.send(head + b"f4240\r\n%b\r\n" % (b"x" * 1_000_000) * 5)
    assert (await client.receive()).status == 413

    other = await RawClient.connect(server.port)
    await other.send(head + b"1\r\nx\r\n" * 65_537)
    assert (await other.receive()).status == 400
    await other.close()


async def test_answers_before_a_malformed_request_still_go_out(client: RawClient) -> None:
    await client.send(message("GET", "/echo") + b"???\r\n\r\n")

    assert [(await client.receive()).status for _ in range(2)] == [200, 400]


async def test_a_request_that_stalls_is_given_up(routes: EchoRoutes) -> None:
    server = HttpServer(routes, HttpLimits(stall_timeout_s=0.05))
    await server.start("127.0.0.1", 0)
    client = await RawClient.connect(server.port)
    idle = await RawClient.connect(server.port)

    await client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")

    assert (await client.receive()).status == 408
    assert (await idle.request("GET", "/echo")).status == 200
    await client.close()
    await idle.close()
    await server.stop(0)


async def test_stop_lets_open_requests_finish(
    server: HttpServer, client: RawClient, routes: EchoRoutes
) -> None:
    await client.send(message("GET", "/hold"))
    await wait_until(lambda: routes.held)

    stopping = asyncio.create_task(server.stop(5))
    await asyncio.sleep(0)
    routes.release()

    response = await client.receive()
    assert response.headers["connection"] == "close"
    await stopping


async def test_stop_does_not_wait_for_ever(
    server: HttpServer, client: RawClient, routes: EchoRoutes
) -> None:
    await client.send(message("GET", "/hold"))
    await wait_until(lambda: routes.held)

    await server.stop(0.01)

    assert await client.is_closed()
    await wait_until(lambda: routes.cancelled == 1)


async def test_a_slow_reader_is_not_read_from(client: RawClient, routes: EchoRoutes) -> None:
    body = b"x" * 3_000_000
    sending = asyncio.create_task(client.send(message("POST", "/echo", body) * 6))

    for _ in range(6):
        assert len((await client.receive()).body) == len(body) + 2
    await sending


async def test_a_taken_port_is_an_error(server: HttpServer, routes: EchoRoutes) -> None:
    with pytest.raises(OSError, match=r"Address already in use \(127.0.0.1:"):
        await HttpServer(routes).start("127.0.0.1", server.port)
