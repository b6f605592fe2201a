"""Static files under ASGI: the file is closed whatever becomes of the answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.test import AsyncRequestFactory

from console.core.static_files import StaticFilesMiddleware


def answer_of(file: Any) -> Any:
    found = SimpleNamespace(status=200, headers=[("Content-Type", "text/css")], file=file)
    static_file = SimpleNamespace(get_response=lambda method, meta: found)
    return StaticFilesMiddleware.serve(static_file, AsyncRequestFactory().get("/static/a.css"))


async def test_a_file_is_sent_piece_by_piece_and_closed(tmp_path: Any) -> None:
    (tmp_path / "a.css").write_bytes(b"a" * 300_000)
    file = (tmp_path / "a.css").open("rb")
    response = answer_of(file)

    pieces = [piece async for piece in response]

    assert [len(piece) for piece in pieces] == [256 * 1024, 300_000 - 256 * 1024]
    assert file.closed


async def test_an_answer_that_nobody_takes_leaves_no_open_file(tmp_path: Any) -> None:
    """The client went away while it was made: nobody closes it."""
    (tmp_path / "a.css").write_bytes(b"a")
    file = (tmp_path / "a.css").open("rb")
    response = answer_of(file)

    del response

    assert file.closed
