"""Finds and imports the file with a model's class, and says precisely what is wrong with it.

Runs in a child process only: importing runs the user's code and changes `sys.path`.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from serving.backends.base import ModelContext
from serving.backends.python import pb_utils
from serving.config import syntax
from serving.errors import ModelLoadError, ServingError

CLASS_NAME = "TritonPythonModel"
DEFAULT_FILENAME = "model.py"
MAX_FRAMES = 20
MAX_ERROR_CHARACTERS = 8192
_IMPORT_PATH = Path(__file__).resolve().parent / "import_path"
_CORE = str(Path(__file__).resolve().parents[2])


def model_name(context: ModelContext) -> str:
    """Of the config, which may be all that there is before auto-complete."""
    return context.config.name or context.model_directory.name


def model_path(context: ModelContext) -> Path:
    """Raises: ModelLoadError when there is no such file."""
    if context.runtime_directory is not None:
        return context.runtime_directory / DEFAULT_FILENAME
    filename = context.config.default_model_filename or DEFAULT_FILENAME
    path = context.version_directory / filename
    shown = f"{model_name(context)}/{context.version}/{filename}"
    if not filename.endswith(".py"):
        raise ModelLoadError(
            f"model '{model_name(context)}': default_model_filename '{filename}' does not end in "
            ".py, as the file of a Python model must"
        )
    if not path.is_file():
        raise ModelLoadError(
            f"model '{model_name(context)}': unable to find '{shown}': put the file with the class "
            f"{CLASS_NAME} there, or name it in default_model_filename"
        )
    return path


def may_have_hook(path: Path, hook: str) -> bool:
    """False when the class certainly has no such method, judged by its source alone.

    Saves a process at each load of a model that has none. Nothing of the file is run.
    """
    try:
        source = path.read_bytes()
        if hook.encode() in source:
            return True
        body = syntax.parse(source).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return True  # whoever imports it says what is wrong
    return not any(
        isinstance(item, ast.ClassDef)
        and item.name == CLASS_NAME
        and not (item.bases or item.keywords or item.decorator_list)
        for item in body
    )


def import_model(context: ModelContext) -> type[Any]:
    """The user's class. Raises: ModelLoadError naming file, line and cause."""
    path = model_path(context)
    shown = f"{model_name(context)}/{context.version}/{path.name}"
    version_directory = str(context.version_directory)
    pb_utils.install(version_directory)
    sys.path.insert(0, version_directory)
    if context.runtime_directory is not None:
        sys.path.insert(0, str(context.runtime_directory))
    sys.path += [str(context.model_directory), str(_IMPORT_PATH)]
    module = run_file(context, path)
    found = getattr(module, CLASS_NAME, None)
    if not isinstance(found, type):
        raise ModelLoadError(f"'{shown}' defines no class {CLASS_NAME}")
    if not callable(getattr(found, "execute", None)):
        raise ModelLoadError(f"class {CLASS_NAME} in '{shown}' has no method execute")
    return found


def run_file(context: ModelContext, path: Path) -> ModuleType:
    """Import a file of the model. Raises: ModelLoadError naming file, line and cause."""
    shown = f"{model_name(context)}/{context.version}/{path.name}"
    # The version folder is the package, as in Triton, so that relative imports work.
    name = f"{context.version}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ModelLoadError(_syntax_text(shown, error, context)) from error
    except Exception as error:
        raise ModelLoadError(f"importing '{shown}' failed: {describe(error, context)}") from error
    return module


def call(what: str, context: ModelContext, function: Callable[..., Any], *arguments: object) -> Any:
    """Run a hook of the model while it loads. Raises: ModelLoadError naming hook and cause."""
    try:
        return function(*arguments)
    except Exception as error:
        raise ModelLoadError(
            f"model '{model_name(context)}': {what} failed: {describe(error, context)}"
        ) from error


def describe(error: BaseException, context: ModelContext, *hidden: str) -> str:
    """Type, message, and where in the model's code, innermost call first; bounded.

    Paths below the model's folder are shown relative to it; frames of the core are left out, and of
    files whose paths begin with one of `hidden`.
    """
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if kind.__module__.startswith("serving."):
        name = kind.__name__
    # Those of the core are sentences, as a missing runtime is one.
    text = str(error) if isinstance(error, ServingError) else f"{name}: {error}"
    if len(text) > MAX_ERROR_CHARACTERS:
        text = text[:MAX_ERROR_CHARACTERS] + "..."
    lines = []
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_CORE, "<frozen importlib", *hidden)):
            where = _shown_path(frame.filename, context)
            lines.append(f"  {where}({frame.lineno}): {frame.name}")
    if not lines:
        return text
    return "\n".join([text, "", "At:", *lines[:MAX_FRAMES]])


def _shown_path(filename: str, context: ModelContext) -> str:
    try:
        return str(Path(filename).relative_to(context.model_directory))
    except ValueError:
        return filename


def _syntax_text(shown: str, error: SyntaxError, context: ModelContext) -> str:
    where = shown
    if error.filename:
        path = _shown_path(error.filename, context)
        where = path if path == error.filename else f"{model_name(context)}/{path}"
    text = f"'{where}', line {error.lineno}: {type(error).__name__}: {error.msg}"
    if error.text:
        text += f": {error.text.strip()}"
    return text
