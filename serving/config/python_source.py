"""What can be told of a Python model's source without running it. Pure functions; any thread."""

from __future__ import annotations

import ast
from pathlib import Path

from serving.config import syntax
from serving.config.findings import Finding, Severity

_CLASS = "TritonPythonModel"
MAX_SOURCE_BYTES = 4 * 1024 * 1024


def check_python_source(path: Path, file: str) -> list[Finding]:
    """Findings about a model.py; `file` is its path relative to the model directory."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return []
        tree = syntax.parse(path.read_bytes(), file)
    except OSError:
        return []
    except SyntaxError as error:
        finding = Finding(
            Severity.ERROR,
            f"Python syntax error: {error.msg}",
            "",
            "",
            error.lineno or 0,
            error.offset or 0,
            file,
            "REP-026",
        )
        return [finding]
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"the source cannot be read as Python: {error}"
        return [Finding(Severity.ERROR, message, file=file, code="REP-026")]
    return _check_class(tree, file)


def _check_class(tree: ast.Module, file: str) -> list[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == _CLASS:
            return _check_execute(node, file)
    if _may_bind(tree):
        return []
    return [
        Finding(
            Severity.ERROR,
            f"the file defines no class {_CLASS}",
            f"write class {_CLASS} with a method execute(self, requests)",
            file=file,
            code="REP-026",
        )
    ]


def _check_execute(node: ast.ClassDef, file: str) -> list[Finding]:
    names = {
        item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if "execute" in names or node.bases:
        return []
    return [
        Finding(
            Severity.WARNING,
            f"class {_CLASS} has no method execute: every request will fail",
            "write def execute(self, requests): and return one response for each request",
            "",
            node.lineno,
            node.col_offset + 1,
            file,
            "PB-001",
        )
    ]


def _may_bind(tree: ast.Module) -> bool:
    """Could the name come from an import or an assignment?"""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            if any((alias.asname or alias.name) in (_CLASS, "*") for alias in node.names):
                return True
        elif isinstance(node, ast.Name) and node.id == _CLASS and isinstance(node.ctx, ast.Store):
            return True
    return False
