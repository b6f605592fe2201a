"""A backend in one Python file, `conch_<name>.py`: its one subclass of `Backend`.

Load threads enter, and the main thread of an instance process. The file is imported once for each
server process; a changed file needs a restart, as a changed library does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.backends.base import Backend
from serving.errors import InvalidArgumentError
from serving.plugin_files import import_file


def open_backend(name: str, path: Path) -> Backend:
    """Raises: InvalidArgumentError naming file and cause."""
    shown = f"{path.parent.name}/{path.name}"
    module = _tried(name, shown, lambda: import_file(path, name))
    classes = [
        item
        for item in vars(module).values()
        if inspect.isclass(item)
        and issubclass(item, Backend)
        and item.__module__ == module.__name__
    ]
    if len(classes) != 1:
        names = ", ".join(item.__name__ for item in classes) or "none"
        raise InvalidArgumentError(
            f"backend '{name}' could not be started: {shown} must define one subclass of "
            f"serving.backends.base.Backend, found {names}"
        )
    made: Backend = _tried(name, shown, classes[0])
    if getattr(made, "name", None) != name:
        raise InvalidArgumentError(
            f"backend '{name}' could not be started: class {classes[0].__name__} of {shown} must "
            f"have name = {name!r}"
        )
    return made


def _tried(name: str, shown: str, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except (Exception, SystemExit) as error:  # a file that calls sys.exit must not end the server
        raise InvalidArgumentError(
            f"backend '{name}' could not be started: {shown}: {type(error).__name__}: {error}"
        ) from error
