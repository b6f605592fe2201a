"""Finds backends: as files near the model, announced by an installed package, or built in.

A backend is made and initialised on first use and kept for the life of the server, so that this
happens once, and finalised when the server ends (spec BE-003). Modules are named as text and
imported then: a runtime that is not installed, or not used, costs nothing. Load threads enter; a
lock keeps one object for each place that a backend comes from.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from serving import native_code
from serving.backends import installed, search
from serving.backends.base import Backend
from serving.backends.search import Wanted
from serving.errors import InvalidArgumentError, ServingError, UnsupportedError
from serving.options import ServerOptions

logger = logging.getLogger(__name__)

BUILT_IN = {
    "dali": "serving.backends.dali.backend:DaliBackend",
    "distributed_addsub": "serving.backends.samples.small:DistributedAddSubBackend",
    "dyna_sequence": "serving.backends.samples.sequences:DynaSequenceBackend",
    "fil": "serving.backends.fil:FilBackend",
    "identity": "serving.backends.identity:IdentityBackend",
    "onnxruntime": "serving.backends.onnxruntime.backend:OnnxRuntimeBackend",
    "openvino": "serving.backends.openvino:OpenVinoBackend",
    "python": "serving.backends.python.backend:PythonBackend",
    "query": "serving.backends.samples.small:QueryBackend",
    "repeat": "serving.backends.samples.streams:RepeatBackend",
    "sequence": "serving.backends.samples.sequences:SequenceBackend",
    "square": "serving.backends.samples.streams:SquareBackend",
    "tensorflow": "serving.backends.tensorflow:TensorFlowBackend",
    "tensorrt": "serving.backends.tensorrt.backend:TensorRTBackend",
    "pytorch": "serving.backends.pytorch.backend:PyTorchBackend",
    "tensorrtllm": "serving.backends.llm.backend:TensorRtLlmBackend",
    "vllm": "serving.backends.llm.backend:VllmBackend",
}
ENTRY_POINT_GROUP = "conch.backends"
FILE_LOADERS = {
    ".py": "serving.backends.module_file:open_backend",
    ".so": "serving.backends.native.backend:open_backend",
}
"""Suffix -> `module:function` that makes a backend of (name, path). UnsupportedError: the file is
for another server; the search goes on after it."""
_RUN_MODEL_PY = frozenset({"python", "pytorch"})
"""Built-in backends with an answer of their own to `runtime: "model.py"`."""
DEFAULT_MAX_BATCH_SIZE = "4"


class BackendRegistry:
    def __init__(
        self,
        backend_directory: Path | None = None,
        backend_config: Mapping[str, Mapping[str, str]] | None = None,
        *,
        auto_complete: bool = True,
        min_compute_capability: float = 6.0,
    ) -> None:
        # A program that serves in its own process may give a text.
        self.backend_directory = None if backend_directory is None else Path(backend_directory)
        self._given = backend_config or {}
        self.min_compute_capability = min_compute_capability
        self._core = {
            "auto-complete-config": str(auto_complete).lower(),
            "backend-directory": "" if backend_directory is None else str(backend_directory),
            "default-max-batch-size": DEFAULT_MAX_BATCH_SIZE,
            "min-compute-capability": f"{min_compute_capability:g}",
        }
        self._backends: dict[str, Backend] = {}
        """By what they come from."""
        self._lock = threading.Lock()

    @classmethod
    def of(cls, options: ServerOptions) -> BackendRegistry:
        """Of a server; what is wrong with installed runtimes is logged."""
        installed.warn_once()
        return cls(
            options.backend_directory,
            options.backend_config,
            auto_complete=options.auto_complete_config,
            min_compute_capability=options.min_compute_capability,
        )

    def __repr__(self) -> str:
        return f"<BackendRegistry loaded={sorted(self._backends)}>"

    def config_of(self, name: str) -> dict[str, str]:
        """--backend-config: what the core says, what is for all, what is for this one (BE-011)."""
        return {**self._core, **self._given.get("", {}), **self._given.get(name, {})}

    def names(self) -> list[str]:
        """Every name that `get` knows; models may bring others in their folders."""
        directory = self.backend_directory
        folders = search.python_based(directory)
        files = self._files()
        return sorted(announced().keys() | BUILT_IN.keys() | folders.keys() | files.keys())

    def _files(self) -> dict[str, Path]:
        """Of the backend directory; without libraries that are for another server."""
        return {
            name: path.absolute()
            for name, path in search.files_in(self.backend_directory).items()
            if path.suffix != ".so" or _is_for_us(name, path, path.stat().st_mtime_ns)
        }

    def get(
        self, name: str, *, runtime: str = "", version_directory: Path | None = None
    ) -> Backend:
        """The backend of a model, initialised.

        Raises: InvalidArgumentError for an unknown name, ServingError when it cannot start; the
        next call tries again.
        """
        wanted = Wanted(name, runtime, version_directory)
        with self._lock:
            refusal: ServingError | None = None
            for path in search.find_files(wanted, self.backend_directory):
                try:
                    self._check_allowed(name, path)
                    return self._kept(name, str(path.absolute()))
                except UnsupportedError as error:
                    logger.warning("%s", error.message)
                    refusal = refusal or error
            source = self._source(wanted)
            if source is None:
                raise refusal or InvalidArgumentError(self._not_found(wanted))
            return self._kept(name, source)

    def loaded(self) -> list[tuple[str, str]]:
        """Name and where it comes from, of all that models have used."""
        return [(backend.name, source) for source, backend in self._backends.copy().items()]

    def location(self, name: str) -> str:
        """Where it comes from without a model: a file or folder, or `module:Class`; empty for a
        name that is none.
        """
        file = self._files().get(name)
        return str(file) if file is not None else self._source(Wanted(name)) or ""

    def finalize(self) -> None:
        """The server ends: every backend that was initialised, once. Blocks."""
        with self._lock:
            while self._backends:
                source, backend = self._backends.popitem()
                try:
                    backend.finalize()
                except Exception:
                    logger.exception("finalising failed backend=%s", source)

    def _check_allowed(self, name: str, path: Path) -> None:
        """Raises: UnsupportedError for code of a model's own where models may not bring any."""
        directory = self.backend_directory
        is_operators = directory is not None and path.parent == directory / name
        if not is_operators and not native_code.is_allowed(self.config_of(name)):
            raise UnsupportedError(
                f"backend '{name}' is code of the model's that would run in the server "
                f"({_shown(path)}), and this server does not allow that: put the file into the "
                "--backend-directory, or have an administrator set CONCH_ALLOW_NATIVE_CODE=true "
                f"for a worker or --backend-config={name},{native_code.KEY}=true"
            )

    def _kept(self, name: str, source: str) -> Backend:
        backend = self._backends.get(source)
        if backend is None:
            backend = self._created(name, source)
            initialize(backend, self.config_of(name))
            self._backends[source] = backend
        return backend

    def _created(self, name: str, source: str) -> Backend:
        folder = Path(source)
        if folder.is_absolute() and folder.is_dir():
            module_name, _, class_name = BUILT_IN["python"].partition(":")
            backend: Backend = getattr(importlib.import_module(module_name), class_name)(
                name, folder
            )
        else:
            backend = create(name, source)
        backend.source = source
        return backend

    def _source(self, wanted: Wanted) -> str | None:
        """Where it comes from if no file of the usual name is it."""
        if wanted.names_a_file:
            return None
        folder = search.python_based(self.backend_directory).get(wanted.name)
        if folder is not None and wanted.runtime in ("", search.PYTHON_RUNTIME):
            return str(folder.absolute())
        if wanted.runtime == search.PYTHON_RUNTIME and wanted.name not in _RUN_MODEL_PY:
            return None
        return target_of(wanted.name)

    def _not_found(self, wanted: Wanted) -> str:
        if not wanted.name:
            return (
                "unexpected platform type: the model names no backend: set `backend` in its "
                "config.pbtxt, one of " + ", ".join(self.names())
            )
        folders = search.places(wanted, self.backend_directory)
        if wanted.names_a_file or target_of(wanted.name):
            return (
                f"unable to find backend library for backend '{wanted.name}': its runtime "
                f"'{wanted.runtime}' is not in "
                + (" or ".join(map(_shown, folders)) or "a --backend-directory")
            )
        text = (
            f"unable to find backend library for backend '{wanted.name}': it is none of the "
            f"built-in backends ({', '.join(sorted(BUILT_IN))}), and no installed package "
            f"announces it under the entry point group '{ENTRY_POINT_GROUP}'"
        )
        if folders:
            files = " or ".join(wanted.files() or (wanted.runtime,))
            text += f"; there is no {files} in " + ", ".join(map(_shown, folders))
        return text


@cache
def announced() -> Mapping[str, str]:
    """Name -> `module:Class`, of packages that were installed when the process first asked."""
    return {item.name: item.value for item in entry_points(group=ENTRY_POINT_GROUP)}


def target_of(name: str) -> str | None:
    """`module:Class` of what a package announces, or of what is built in."""
    return announced().get(name) or BUILT_IN.get(name)


def create(name: str, source: str) -> Backend:
    """A new backend from a file or `module:Class`, not initialised. Raises: ServingError."""
    path = Path(source)
    if path.is_absolute():
        loader = FILE_LOADERS.get(path.suffix)
        if loader is None:
            raise UnsupportedError(
                f"backend '{name}': {_shown(path)} is a library for another server, which cannot "
                "be loaded here"
            )
        module_name, _, function = loader.partition(":")
        made: Backend = getattr(importlib.import_module(module_name), function)(name, path)
        return made
    module_name, _, class_name = source.partition(":")
    if not class_name:
        raise InvalidArgumentError(
            f"unable to find backend library for backend '{name}': '{source}' is none"
        )
    try:
        backend = getattr(importlib.import_module(module_name), class_name)()
    except ServingError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(
            f"backend '{name}' ({source}) could not be started: {error}"
        ) from error
    if not isinstance(backend, Backend):
        raise InvalidArgumentError(
            f"backend '{name}' ({source}) is not a subclass of serving.backends.base.Backend"
        )
    return backend


@lru_cache(maxsize=256)
def _is_for_us(name: str, path: Path, changed_ns: int) -> bool:
    """Reads a library through, which may be large: once for each state of the file."""
    check_file = importlib.import_module("serving.backends.native.library").check_file
    try:
        check_file(name, path)
    except UnsupportedError:
        return False
    return True


def initialize(backend: Backend, config: Mapping[str, str]) -> None:
    """Raises: ServingError, InvalidArgumentError with whatever else the hook raises."""
    try:
        backend.initialize(config)
    except ServingError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(
            f"backend '{backend.name}' could not be initialised: {type(error).__name__}: {error}"
        ) from error


def _shown(path: Path) -> str:
    """Enough of a path to find it, without where the repository lies."""
    return "/".join(path.parts[-2:])
