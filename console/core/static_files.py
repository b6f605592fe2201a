"""Serves static files under ASGI with WhiteNoise.

WhiteNoise answers with a synchronous file iterator, which Django under ASGI would first read whole
and warn about; here the file is read piece by piece in a thread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import IO, Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]

PIECE = 256 * 1024
_NO_PIECES: tuple[bytes, ...] = ()


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> Any:
        if not isinstance(request, ASGIRequest):
            return WhiteNoiseMiddleware.serve(static_file, request)
        found = static_file.get_response(request.method, request.META)
        content = read_pieces(found.file) if found.file else nothing()
        response = StreamingHttpResponse(content, status=int(found.status))
        if found.file:
            # A client that left before the first piece leaves the generator unstarted.
            response._resource_closers.append(found.file.close)  # type: ignore[attr-defined]
            # One that left while the answer was made leaves a response that nobody closes.
            weakref.finalize(response, found.file.close)
        del response["content-type"]
        for name, value in found.headers:
            response[name] = value
        return response


async def read_pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece
    finally:
        file.close()


async def nothing() -> AsyncIterator[bytes]:
    """The body of a 304 or of an answer to HEAD."""
    for piece in _NO_PIECES:
        yield piece
