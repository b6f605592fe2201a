"""The raw ASGI callable behind `/v2` and `/v1`: check the caller, pick a worker, pass the bytes.

Mounted outside Django and Channels (see `console.asgi`); runs on the web server's event loop.
Bodies under `/v2` are never parsed and never held whole; one under `/v1` names its model. Errors of
its own look as those of the API that was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from console.core.lifespan import at_shutdown
from console.gateway import openai
from console.gateway.access import Access, Headers
from console.gateway.routes import Own, Refusal, Target, find_route
from console.gateway.upstream import Connection, Head, Pool, UpstreamError
from console.gateway.workers import NoWorkerError, Upstream, Workers, only

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WORKER = b"x-conch-worker"
"""Who answered; and, in a request, who is to answer: sequences stay with one worker."""

SMALL_BODY = 64 * 1024
"""JSON below this is parsed on the loop."""

# Of the connection, not of the message; and secrets of the console that a worker must not see.
DROPPED = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"expect",
        b"host",
        b"content-length",
        b"authorization",
        b"cookie",
        WORKER,
    }
)
DROPPED_OF_ANSWER = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"server", b"date", b"set-cookie"}
)


class ClientGoneError(Exception):
    """The client closed its connection; nobody waits for an answer."""


class BodyTooLargeError(Exception):
    """A body that must be read as a whole is larger than that."""


class Gateway:
    def __init__(self) -> None:
        self.access = Access()
        self.workers = Workers()
        self.pool = Pool()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        path = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        is_openai = openai.covers(path)
        route = openai.find_route(method, path) if is_openai else find_route(method, path)
        refuse = _Refusing(send, openai.error_body if is_openai else _kserve_error)
        if isinstance(route, Own):
            await self._answer_health(route, send)
            return
        if isinstance(route, Refusal):
            await refuse(route.status, route.message)
            return
        headers: Headers = dict(scope["headers"])
        denied = await self.access.check(method, headers, route)
        if denied:
            await refuse(denied.status, denied.message)
            return
        try:
            if route.lists_models:
                await send_json(send, 200, openai.model_list(await self.workers.models()))
                return
            body = _Body(scope, receive)
            await body.start(openai.MOST_BODY if route.is_named_in_body else 0)
            if route.is_named_in_body:
                route = replace(route, model=await _named_model(body.first))
            failure = await self._forward(scope, route, body, send, headers.get(WORKER))
            if failure:
                await refuse(503, failure)
        except BodyTooLargeError:
            await refuse(413, f"the request body exceeds the limit of {openai.MOST_BODY} bytes")
        except NoWorkerError as error:
            await refuse(error.status, str(error))
        except ClientGoneError:
            return

    async def _answer_health(self, route: Own, send: Send) -> None:
        fine = route.check == "live" or await self.workers.has_ready()
        await send_plain(send, 200 if fine else 503, b"")

    async def _forward(
        self, scope: Scope, target: Target, body: _Body, send: Send, worker: bytes | None
    ) -> str:
        """Why no worker has answered; empty where one has. Raises NoWorkerError."""
        last_error = ""
        candidates = await self.workers.candidates(target.model, target.version)
        if worker is not None:
            candidates = only(worker.decode("latin-1"), candidates)
        for upstream in candidates:
            try:
                await self._try_worker(upstream, scope, body, send)
                return ""
            except UpstreamError as error:
                logger.warning("gateway: %s path=%s", error, scope["path"])
                self.workers.shun(upstream)
                last_error = str(error)
                if not error.is_unsent or not body.is_rewindable:
                    break
        return last_error

    async def _try_worker(self, upstream: Upstream, scope: Scope, body: _Body, send: Send) -> None:
        """Raises: UpstreamError while nothing was sent to the client yet."""
        connection = await self.pool.take(upstream)
        try:
            await self._exchange(connection, scope, body, send)
        except UpstreamError as error:
            connection.abort()
            if not (error.is_unsent and connection.is_reused and body.is_rewindable):
                raise
            connection = await self.pool.take(upstream, fresh=True)
            await self._exchange(connection, scope, body, send)

    async def _exchange(
        self, connection: Connection, scope: Scope, body: _Body, send: Send
    ) -> None:
        finished = False
        try:
            await connection.write(request_head(scope, connection.upstream, body))
            async for piece in body.pieces():
                await connection.write(piece)
            with body.watch(connection.abort):
                head, pieces = await asyncio.wait_for(
                    connection.answer(), settings.CONCH_GATEWAY_TIMEOUT_SECONDS
                )
                await send(response_start(head, connection.upstream))
                try:
                    async for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                except UpstreamError as error:
                    # Too late for an error: cut the answer off, so that the client sees it broken.
                    logger.warning("gateway: %s", error)
                    raise ClientGoneError from error
            # Outside the watch: the server reports the end of the answer as the client's leaving.
            await send({"type": "http.response.body", "body": b""})
            finished = head.keeps_connection
        except UpstreamError as error:
            if body.is_abandoned:
                raise ClientGoneError from error
            raise
        except TimeoutError as error:
            raise UpstreamError(
                f"Worker '{connection.upstream.worker_id}' did not answer within "
                f"{settings.CONCH_GATEWAY_TIMEOUT_SECONDS} s"
            ) from error
        finally:
            if finished:
                self.pool.give_back(connection)
            else:
                connection.abort()


class _Body:
    """The client's body: its first piece is kept, so that another worker can be tried."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.first = b""
        self._more = True
        self._sent_more = False
        self.is_abandoned = False
        self.length = dict(scope["headers"]).get(b"content-length")

    async def start(self, most: int) -> None:
        """Reads the first piece; with `most`, all of it. Raises BodyTooLargeError."""
        self.first, self._more = await self._next()
        if most and self._more:
            pieces, size = [self.first], len(self.first)
            while self._more and size <= most:
                piece, self._more = await self._next()
                pieces.append(piece)
                size += len(piece)
            if size > most:
                raise BodyTooLargeError
            self.first = b"".join(pieces)
        if not self._more and self.length is None:
            self.length = str(len(self.first)).encode()

    @property
    def is_rewindable(self) -> bool:
        return not self._sent_more

    @property
    def is_chunked(self) -> bool:
        return self.length is None

    async def pieces(self) -> Any:
        """The bytes to write: framed as chunks where the length is not known."""
        piece, more = self.first, self._more
        while True:
            if piece:
                yield b"%x\r\n%b\r\n" % (len(piece), piece) if self.is_chunked else piece
            if not more:
                break
            self._sent_more = True
            piece, more = await self._next()
        if self.is_chunked:
            yield b"0\r\n\r\n"

    async def _next(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    @contextlib.contextmanager
    def watch(self, on_gone: Callable[[], None]) -> Any:
        """While the worker computes: a client that hangs up ends the worker's request too."""
        task = asyncio.ensure_future(self._receive())

        def gone(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None:
                self.is_abandoned = True
                on_gone()

        task.add_done_callback(gone)
        try:
            yield
        finally:
            task.remove_done_callback(gone)
            task.cancel()


def request_head(scope: Scope, upstream: Upstream, body: _Body) -> bytes:
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope.get("query_string", b"")
    target = path.partition(b"?")[0] + (b"?" + query if query else b"")
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target)]
    lines.append(b"host: %b:%d" % (upstream.host.encode(), upstream.port))
    lines += [b"%b: %b" % pair for pair in scope["headers"] if pair[0] not in DROPPED]
    if body.length is None:
        lines.append(b"transfer-encoding: chunked")
    elif scope["method"] == "POST" or body.length != b"0":
        lines.append(b"content-length: %b" % body.length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response_start(head: Head, upstream: Upstream) -> dict[str, Any]:
    headers = [pair for pair in head.headers if pair[0] not in DROPPED_OF_ANSWER]
    headers.append((WORKER, upstream.worker_id.encode()))
    return {"type": "http.response.start", "status": head.status, "headers": headers}


async def _named_model(body: bytes) -> str:
    if len(body) < SMALL_BODY:
        return openai.model_of(body)
    return await asyncio.to_thread(openai.model_of, body)


@dataclass(frozen=True, slots=True)
class _Refusing:
    """Sends an error of the gateway's own, in the form of the API that was asked."""

    send: Send
    body: Callable[[int, str], dict[str, Any]]

    async def __call__(self, status: int, message: str) -> None:
        extra = [(b"www-authenticate", b'Bearer realm="conch"')] if status == 401 else []
        await send_json(self.send, status, self.body(status, message), extra)


def _kserve_error(status: int, message: str) -> dict[str, Any]:
    return {"error": message}


async def send_json(
    send: Send, status: int, value: object, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = json.dumps(value).encode()
    await send_plain(send, status, body, [(b"content-type", b"application/json"), *(extra or [])])


async def send_plain(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [length, *(headers or [])]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


gateway = Gateway()
at_shutdown(gateway.pool.close)
