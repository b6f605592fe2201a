"""Downloads under ASGI: a piece at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.repository import download
from console.repository.download import Download

# Closing a response tells Django that a request is over, and Django then looks at its connections.
pytestmark = pytest.mark.django_db


async def test_a_large_file_is_sent_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PIECE_BYTES", 4)
    (tmp_path / "model.plan").write_bytes(b"0123456789")

    response = Download(tmp_path / "model.plan")
    pieces = [piece async for piece in response]
    response.close()

    assert pieces == [b"0123", b"4567", b"89"]
    assert response["Content-Length"] == "10"


def test_a_file_is_never_shown_in_the_browser(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<script>alert(1)</script>")

    response = Download(tmp_path / "page.html")
    response.close()

    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"].startswith("attachment")
