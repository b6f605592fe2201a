"""What nobody foresaw in the files of a model: that model fails, no other, and not the server."""

from __future__ import annotations

from pathlib import Path

from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from tests.serving.repository.fakes import FakeLoader, rows, write_model


async def test_what_nobody_foresaw_in_a_model_fails_that_model_alone(tmp_path: Path):
    write_model(tmp_path, "good", v1="x")
    (write_model(tmp_path, "odd", v1="x") / "surprise").touch()
    manager = RepositoryManager((tmp_path,), Lifecycle(), FakeLoader(), LoadThreads())

    failed = await manager.load_all()

    assert list(failed) == ["odd"]
    assert rows(manager.index(ready_only=True)) == ["good:1 READY"]
    assert "RuntimeError: surprise" in failed["odd"].message
    await manager.close(5)
