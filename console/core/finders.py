"""Finds browser libraries inside Python packages that ship them outside Django's `static/`.

Plotly's wheel carries `package_data/plotly.min.js`; it is served as `vendor/plotly.min.js`, so that
the repository vendors nothing and a fresh machine needs no Node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.files.storage import FileSystemStorage

# Served name -> (package, path inside it)
FILES = {"vendor/plotly.min.js": ("plotly", "package_data/plotly.min.js")}


class PackageFile(FileSystemStorage):
    """A storage that knows one file under the name it is served by."""

    def __init__(self, served_name: str, path: Path) -> None:
        super().__init__(location=str(path.parent))
        self.served_name = served_name
        self.real_path = path
        self.prefix = None

    def path(self, name: str) -> str:
        return str(self.real_path)


class PackageFilesFinder(BaseFinder):
    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        located = locate(path)
        if located is None:
            return [] if find_all else None
        return [str(located)] if find_all else str(located)

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, PackageFile]]:
        for served_name in FILES:
            located = locate(served_name)
            if located and not matches_patterns(served_name, ignore_patterns or []):
                yield served_name, PackageFile(served_name, located)


def locate(served_name: str) -> Path | None:
    """The file behind a served name, without importing its package."""
    if served_name not in FILES:
        return None
    package, inside = FILES[served_name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / inside
    return path if path.is_file() else None
