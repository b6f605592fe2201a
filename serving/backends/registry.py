"""Finds backends by name: built in, or announced by an installed package.

A backend is made on first use and kept for the life of the server, so that its initialisation runs
once (spec BE-003). Modules are named as text and imported then: a runtime that is not installed, or
not used, costs nothing. Load threads enter; a lock keeps one object for each name.
"""

from __future__ import annotations

import importlib
import threading
from importlib.metadata import entry_points
from pathlib import Path

from serving.backends.base import Backend
from serving.errors import InvalidArgumentError, ServingError

BUILT_IN = {
    "identity": "serving.backends.identity:IdentityBackend",
    "onnxruntime": "serving.backends.onnxruntime:OnnxRuntimeBackend",
    "python": "serving.backends.python.backend:PythonBackend",
}
ENTRY_POINT_GROUP = "conch.backends"


class BackendRegistry:
    def __init__(self, backend_directory: Path | None = None) -> None:
        self._backend_directory = backend_directory
        self._backends: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<BackendRegistry loaded={sorted(self._backends)}>"

    def names(self) -> list[str]:
        """Every name that `get` knows."""
        announced = {item.name for item in entry_points(group=ENTRY_POINT_GROUP)}
        return sorted(announced.union(BUILT_IN, self._python_based()))

    def get(self, name: str) -> Backend:
        """Raises: InvalidArgumentError for an unknown name, ServingError when it cannot start."""
        with self._lock:
            backend = self._backends.get(name)
            if backend is None:
                backend = self._backends[name] = self._create(name)
            return backend

    def location(self, name: str) -> str:
        """Where it comes from: a folder, or `module:Class`; empty for a name that is none."""
        known = BUILT_IN.get(name) or self._announced(name)
        if known is None and name in self._python_based():
            known = f"{self._backend_directory}/{name}"
        return known or ""

    def _create(self, name: str) -> Backend:
        target = BUILT_IN.get(name) or self._announced(name)
        if target is None and name in self._python_based():
            assert self._backend_directory is not None
            module_name, _, class_name = BUILT_IN["python"].partition(":")
            python_backend = getattr(importlib.import_module(module_name), class_name)
            made: Backend = python_backend(name, self._backend_directory / name)
            return made
        if target is None:
            raise InvalidArgumentError(self._not_found(name))
        module_name, _, class_name = target.partition(":")
        try:
            backend = getattr(importlib.import_module(module_name), class_name)()
        except ServingError:
            raise
        except Exception as error:
            raise InvalidArgumentError(
                f"backend '{name}' ({target}) could not be started: {error}"
            ) from error
        if not isinstance(backend, Backend):
            raise InvalidArgumentError(
                f"backend '{name}' ({target}) is not a subclass of serving.backends.base.Backend"
            )
        return backend

    def _python_based(self) -> set[str]:
        """Folders of the backend directory with a model.py that serves many models (BE-010)."""
        if self._backend_directory is None:
            return set()
        return {path.parent.name for path in self._backend_directory.glob("*/model.py")}

    @staticmethod
    def _announced(name: str) -> str | None:
        found = entry_points(group=ENTRY_POINT_GROUP, name=name)
        return next((item.value for item in found), None)

    def _not_found(self, name: str) -> str:
        if not name:
            return (
                "unexpected platform type: the model names no backend: set `backend` in its "
                "config.pbtxt, one of " + ", ".join(self.names())
            )
        text = (
            f"unable to find backend library for backend '{name}': it is none of the built-in "
            f"backends ({', '.join(sorted(BUILT_IN))}), and no installed package announces it "
            f"under the entry point group '{ENTRY_POINT_GROUP}'"
        )
        directory = self._backend_directory
        if directory is not None and (directory / name).is_dir():
            text += (
                f"; the folder {name} in the backend directory holds a library for another server, "
                "which cannot be loaded here"
            )
        return text
