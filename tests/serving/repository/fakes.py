"""A loader without backends: models are what the files say, failures are files named so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from serving.errors import InvalidArgumentError, ServingError
from serving.repository.source import Source


class FakeModel:
    def __init__(self, name: str, version: int, content: str = "") -> None:
        self.name = name
        self.version = version
        self.content = content
        self.is_ready = True
        self.is_closed = False
        self.has_failed = False
        self.instance_count = 1
        self.inflight_count = 0
        self.ensemble = None
        self.hosts = ()
        self.left_running: list[str] = []
        self.abandoned_with: list[str] = []
        self.spec = SimpleNamespace(backend="fake")
        self.may_close = asyncio.Event()
        self.may_close.set()

    def __repr__(self) -> str:
        return f"{self.name}:{self.version}={self.content}"

    async def drain_and_close(self) -> None:
        await self.may_close.wait()
        self.is_closed = True

    def abandon(self, error: ServingError) -> None:
        self.abandoned_with.append(error.message)
        self.may_close.set()


@dataclass
class FakePrepared:
    source: Source
    versions: Collection[int]
    agents: Any = None
    parts: Collection[str] = ()
    backend: str = "fake"


@dataclass
class FakeLoader:
    """Version files: the content is the model; "broken" fails, "hang" waits for `release`."""

    loaded: list[FakeModel] = field(default_factory=list)
    prepared: list[Source] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    hanging: int = 0
    most_at_once: int = 0
    is_stubborn: bool = False
    """Goes on when it is cancelled."""
    misfits: dict[str, str] = field(default_factory=dict)
    """Models that do not fit to their parts, and why."""
    changes: set[str] = field(default_factory=set)
    """Models that have become something else because of their parts; told once."""

    def prepare(self, source: Source) -> FakePrepared:
        self.prepared.append(source)
        if (source.directory / "bad_config").exists():
            raise InvalidArgumentError("config.pbtxt:3:1: bad")
        if (source.directory / "surprise").exists():
            raise RuntimeError("surprise")
        versions: Collection[int] = source.request.versions or source.stamp.versions
        parts = source.directory / "parts"
        names = parts.read_text().split() if parts.exists() else []
        return FakePrepared(source, versions, parts=names)

    async def load_version(self, prepared: FakePrepared, version: int, threads: Executor) -> Any:
        path = prepared.source.directory / str(version) / "model"
        reading = asyncio.get_running_loop().run_in_executor(threads, self._read, path)
        try:
            content = await asyncio.shield(reading)
        except asyncio.CancelledError:
            if not self.is_stubborn:
                raise
            content = await reading
        model = FakeModel(prepared.source.name, version, content)
        self.loaded.append(model)
        return model

    def join(self, prepared: FakePrepared) -> FakePrepared:
        name = prepared.source.name
        if name in self.misfits:
            raise InvalidArgumentError(self.misfits[name])
        if name not in self.changes:
            return prepared
        self.changes.remove(name)
        return replace(prepared)

    def may_update(self, before: FakePrepared, after: FakePrepared, version: int) -> bool:
        return False

    async def prepare_update(
        self, prepared: FakePrepared, version: int, model: Any, threads: Executor
    ) -> Any:
        raise AssertionError("no model here can be updated in place")

    def _read(self, path: Path) -> str:
        content = path.read_text()
        if content == "broken":
            raise InvalidArgumentError(f"load: {path.parent.name}/model is broken")
        if content == "bug":
            raise ZeroDivisionError("oops")
        if content == "hang":
            self.hanging += 1
            self.most_at_once = max(self.most_at_once, self.hanging)
            self.release.wait(5)
            self.hanging -= 1
        return content


def write_model(root: Path, name: str, **versions: str) -> Path:
    """`write_model(root, "m", v1="a", v2="b")` writes m/1/model and m/2/model."""
    for version, content in versions.items():
        directory = root / name / version[1:]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model").write_text(content)
    (root / name).mkdir(exist_ok=True)
    return root / name


def rows(index: list[Any]) -> list[str]:
    """Index rows as `name:version STATE reason`, easy to compare."""
    return [f"{row.name}:{row.version or ''} {row.state} {row.reason}".strip() for row in index]
