"""Classes that operators bring as files, `<directory>/<name>/<file>`: caches, repository agents,
and backends.

The file is imported when its class is wanted; whoever asks keeps the class. Blocks; any thread.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from serving.errors import InvalidArgumentError


def find_class(directory: Path | None, name: str, file: str, attribute: str) -> Any:
    """The class `attribute` of the file, None where there is no such file.

    Raises InvalidArgumentError for a file without the class; what the file itself raises passes.
    """
    if directory is None or not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name.startswith("."):
        return None
    path = directory / name / file
    if not path.is_file():
        return None
    kind = getattr(import_file(path, name), attribute, None)
    if kind is None:
        raise InvalidArgumentError(f"'{name}' has no class {attribute} in {file}: define one")
    return kind


def import_file(path: Path, name: str) -> ModuleType:
    """The file as a module that no import finds. Raises what the file raises."""
    module_name = f"conch_{path.stem}_" + re.sub(r"\W", "_", name)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
