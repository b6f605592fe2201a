"""Methods that do what their names say, on a real server in this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from serving.errors import NotFoundError
from serving.frontends import grpc_wire
from serving.frontends.grpc_call import UnaryCall
from serving.frontends.grpc_methods import Method
from serving.frontends.grpc_server import GrpcApplication
from serving.frontends.grpc_stream_call import StreamCall
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.server import Http2Server
from serving.options import GrpcOptions
from tests.serving.frontends.http2.raw import Answer, RawHttp2

GRPC = (("te", "trailers"), ("content-type", "application/grpc"))


class Methods:
    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.held: list[UnaryCall] = []
        self.heads: list[Any] = []
        self.talks: list[Talk] = []
        self.names: dict[str, str] = {}
        """Path -> what the method is called, where that is another name."""

    def table(self) -> dict[str, Method]:
        unary = {"Echo": self.echo, "Hold": self.hold, "Fail": self.fail, "Crash": self.crash}
        found = {
            f"/t/{path}": Method(self.names.get(path, path), handle)
            for path, handle in unary.items()
        }
        return found | {"/t/Talk": Method("Talk", open_stream=self.talk)}

    def echo(self, data: Any, call: UnaryCall) -> None:
        self.heads.append(call.head)
        call.reply([bytes(data)])

    def hold(self, data: Any, call: UnaryCall) -> None:
        self.held.append(call)
        call.on_cancel = lambda: self.cancelled.append("Hold")

    def fail(self, data: Any, call: UnaryCall) -> None:
        raise NotFoundError(bytes(data).decode("utf-8", "replace"))

    def crash(self, data: Any, call: UnaryCall) -> None:
        raise RuntimeError("as asked")

    def talk(self, call: StreamCall) -> Talk:
        self.talks.append(Talk(self, call))
        return self.talks[-1]


class Talk:
    """Echoes each message; "stop" ends with an error, "crash" raises, "pause" pauses."""

    def __init__(self, methods: Methods, call: StreamCall) -> None:
        self.call = call
        self.methods = methods
        self.messages: list[bytes] = []

    def on_message(self, data: Any) -> None:
        text = bytes(data)
        self.messages.append(text)
        if text == b"stop":
            self.call.fail_with(NotFoundError("as asked"))
        elif text == b"crash":
            raise RuntimeError("as asked")
        elif text == b"pause":
            self.call.pause()
        else:
            self.call.send([text])

    def on_end(self) -> None:
        self.call.finish()

    def on_drained(self) -> None:
        """It does not mind."""

    def on_gone(self) -> None:
        self.methods.cancelled.append("Talk")


@contextlib.asynccontextmanager
async def serving(
    methods: Methods, options: GrpcOptions | None = None, limits: Http2Limits | None = None
) -> AsyncIterator[Http2Server]:
    server = Http2Server(GrpcApplication(methods.table(), options or GrpcOptions()), limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(0)


class RawGrpc(RawHttp2):
    def call(self, stream: int, method: str, *more: tuple[str, str]) -> None:
        self.open(stream, f"/t/{method}", *GRPC, *more)

    def message(
        self, stream: int, text: bytes, *, end: bool = True, is_compressed: bool = False
    ) -> None:
        self.data(stream, framed(text, is_compressed=is_compressed), end=end)

    async def status(self, stream: int) -> tuple[int, str]:
        answer = await self.answer(stream)
        return status_of(answer)


def status_of(answer: Answer) -> tuple[int, str]:
    return int(answer.trailers["grpc-status"]), answer.trailers.get("grpc-message", "")


def framed(text: bytes, *, is_compressed: bool = False) -> bytes:
    return grpc_wire.PREFIX.pack(is_compressed, len(text)) + text
