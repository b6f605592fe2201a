"""Heads that have come before are not parsed again: which those are, and what differs."""

from __future__ import annotations

import pytest

from serving.frontends.http_heads import MAX_HEADS
from serving.frontends.http_server import HttpServer
from tests.serving.frontends.raw_http import RawClient, message
from tests.serving.frontends.test_http_server import EchoRoutes, client, routes, server
from tests.waiting import wait_until

__all__ = ["client", "routes", "server"]


def _kept(server: HttpServer) -> list[bytes]:
    return list(server.heads._heads)


async def test_equal_heads_with_other_bodies(client: RawClient, server: HttpServer) -> None:
    for body in (b"one", b"two", b"\r\n\r"):
        assert (await client.request("POST", "/echo", body)).body == b"<" + body + b">"

    assert len(_kept(server)) == 1


async def test_a_known_head_brings_the_same_request(client: RawClient, routes: EchoRoutes) -> None:
    for _ in range(2):
        await client.request("POST", "/echo?x=1", b"body", X_Mixed="V")

    first, second = routes.requests
    assert (second.method, second.target, second.path) == (b"POST", b"/echo?x=1", b"/echo")
    assert (second.headers, second.raw_headers) == (first.headers, first.raw_headers)
    assert second.received_ns > first.received_ns


async def test_known_heads_in_a_pipeline_with_others(client: RawClient, server: HttpServer) -> None:
    await client.request("POST", "/echo", b"abc")
    await client.request("GET", "/echo")

    known = message("POST", "/echo", b"new") + message("GET", "/echo")
    await client.send(known + message("POST", "/echo", b"long body") + known)

    got = [(await client.receive()).body for _ in range(5)]
    assert got == [b"<new>", b"<>", b"<long body>", b"<new>", b"<>"]
    assert len(_kept(server)) == 3


async def test_a_known_head_whose_body_comes_later(client: RawClient) -> None:
    whole = message("POST", "/echo", b"abcdef")
    await client.request("POST", "/echo", b"000000")

    for cut in (3, len(whole) - 7, len(whole) - 6, len(whole) - 2):
        await client.send(whole[:cut])
        await client.send(whole[cut:])
        assert (await client.receive()).body == b"<abcdef>"


async def test_answers_to_head_have_no_body(client: RawClient) -> None:
    for _ in range(2):
        assert (await client.request("HEAD", "/echo")).headers["content-length"] == "2"


@pytest.mark.parametrize(
    "head",
    [
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"\r\nPOST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /echo HTTP/1.1\nContent-Length: 10\n\nab\r\n\r\ncdef",
        b"POST /echo HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /echo HTTP/1.1\r\nX: %s\r\nContent-Length: 3\r\n\r\nabc" % (b"x" * 2500),
    ],
)
async def test_heads_that_are_not_plain_are_not_kept(
    client: RawClient, server: HttpServer, head: bytes
) -> None:
    await client.send(head)
    await client.receive()

    assert _kept(server) == []


async def test_nothing_is_taken_after_a_request_to_close(
    client: RawClient, routes: EchoRoutes
) -> None:
    await client.request("POST", "/echo", b"abc")
    last = b"POST /hold HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    await client.send(last)
    await wait_until(lambda: len(routes.held) == 1)
    await client.send(message("POST", "/echo", b"abc"))
    routes.release()
    await client.receive()

    assert await client.is_closed()
    assert [request.path for request in routes.requests] == [b"/echo", b"/hold"]


async def test_a_server_that_stops_closes_after_a_known_request(
    client: RawClient, server: HttpServer, routes: EchoRoutes
) -> None:
    await client.request("POST", "/echo", b"abc")
    server.closing = True

    assert (await client.request("POST", "/echo", b"abc")).headers["connection"] == "close"
    assert await client.is_closed()


async def test_only_so_many_heads_are_kept(client: RawClient, server: HttpServer) -> None:
    for number in range(MAX_HEADS + 1):
        await client.request("GET", f"/echo?{number}")

    assert len(_kept(server)) == 1
