"""A bucket in memory that speaks fsspec, counts what is read, and fails when it is told to."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from typing import Any

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class FakeBucket:
    """Keys are `bucket/path`; a key that ends with a slash is a placeholder of a directory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[tuple[str, int, int]] = []
        self.before_read: Callable[[str, int], None] = lambda key, start: None
        self.before_list: Callable[[], None] = lambda: None
        self.has_md5 = True
        self.writes = 0
        self.written: dict[str, int] = {}

    def write(self, path: str, content: bytes | str) -> None:
        key = f"bucket/models/{path}"
        self.objects[key] = content.encode() if isinstance(content, str) else content
        self.writes += 1
        self.written[key] = self.writes

    def remove(self, path: str) -> None:
        del self.objects[f"bucket/models/{path}"]

    @property
    def bytes_read(self) -> int:
        return sum(end - start for _, start, end in self.reads)

    def info(self, key: str) -> dict[str, Any]:
        if key not in self.objects:
            raise FileNotFoundError(key)
        content = self.objects[key]
        etag = hashlib.md5(content).hexdigest() if self.has_md5 else f"{self.written[key]}-2"
        return {
            "name": key,
            "type": "file",
            "size": len(content),
            "ETag": f'"{etag}"',
            "LastModified": EPOCH + datetime.timedelta(seconds=self.written[key]),
        }

    def find(self, place: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        self.before_list()
        return {key: self.info(key) for key in self.objects if key.startswith(f"{place}/")}

    def ls(self, place: str, *, detail: bool) -> list[dict[str, Any]]:
        inside = [key.removeprefix(f"{place}/") for key in self.find(place, detail=True)]
        if not inside:
            raise FileNotFoundError(place)
        return [
            {"name": f"{place}/{name}", "type": "directory"}
            for name in {key.partition("/")[0] for key in inside if "/" in key}
        ]

    def cat_file(self, key: str, *, start: int, end: int) -> bytes:
        self.before_read(key, start)
        if key not in self.objects:
            raise FileNotFoundError(key)
        self.reads.append((key, start, end))
        return self.objects[key][start:end]
