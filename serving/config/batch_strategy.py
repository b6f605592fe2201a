"""Where the file of a custom batching strategy lies, and whether it has what it needs.

Reads files, runs nothing; any thread. Source: spec SCH-043, VAL-63.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from serving.config import syntax

STRATEGY = "TRITON_BATCH_STRATEGY_PATH"
FILE_NAME = "batchstrategy.py"
FUNCTIONS = (
    "batcher_initialize",
    "batcher_finalize",
    "batch_initialize",
    "batch_include_request",
    "batch_finalize",
)
"""What the five entry points of a Triton strategy are called here."""


def find(parameters: Mapping[str, str], model_directory: Path, version: int) -> Path | None:
    """The strategy that the dynamic batcher asks, if there is one.

    The parameter names it, inside the model repository; otherwise it is batchstrategy.py in the
    version directory or the model directory. A native library is never one.
    """
    name = parameters.get(STRATEGY, "")
    if name:
        return named_file(model_directory, name) if is_python(name) else None
    for directory in (model_directory / str(version), model_directory):
        path = directory / FILE_NAME
        if path.is_file():
            return path
    return None


def is_python(name: str) -> bool:
    return name.endswith(".py")


def named_file(model_directory: Path, name: str) -> Path | None:
    """The file `name`, seen from the model repository or else from the model; None if there is none
    or it lies outside the repository."""
    own = model_directory.resolve()
    for base in (own.parent, own):
        path = (base / name).resolve()
        if path.is_relative_to(own.parent) and path.is_file():
            return path
    return None


def problem_of(path: Path) -> str:
    """What is wrong with the source, in one sentence; empty when it has all five functions."""
    try:
        tree = syntax.parse(path.read_bytes(), path.name)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"custom batching strategy '{path.name}' cannot be read as Python: {error}"
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            defined |= {item.id for item in node.targets if isinstance(item, ast.Name)}
    missing = [name for name in FUNCTIONS if name not in defined]
    if "*" in defined or not missing:
        return ""
    return (
        f"custom batching strategy '{path.name}' must define {', '.join(FUNCTIONS)}; it lacks "
        f"{', '.join(missing)}"
    )
