"""Sends a file of the repository as a download, however large. Web process.

Under ASGI Django would read a plain `FileResponse` into memory as a whole before it sends the first
byte; this one reads a piece at a time, in a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from asgiref.sync import sync_to_async
from django.http import FileResponse

PIECE_BYTES = 1 << 20


class Download(FileResponse):
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        # Always a download, never shown: an uploaded HTML file must not run on our address.
        super().__init__(
            self._file,
            as_attachment=True,
            filename=path.name,
            content_type="application/octet-stream",
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = sync_to_async(self._file.read, thread_sensitive=False)
        while piece := await read(PIECE_BYTES):
            yield piece
