"""The one file that imports TensorRT and TensorRT-RTX, lazily: their Python APIs are the same.

Importing them needs no driver. Making a runtime and reading an engine does: some builds (the lean
and dispatch runtimes of TensorRT 11) crash without one, so `cuda_runtime` is asked first. Load
threads enter; the logger is entered by threads of TensorRT too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from serving.backends.runtimes import require
from serving.config.plan_header import PRODUCTS, TENSORRT, TENSORRT_RTX
from serving.errors import InvalidArgumentError, UnavailableError
from serving.native_code import check_whole

logger = logging.getLogger(__name__)

INSTALL = {
    TENSORRT: "pip install 'conch[tensorrt]' with NVIDIA's package index as --extra-index-url",
    TENSORRT_RTX: "pip install 'conch[tensorrt-rtx]'",
}
_KEPT_ERRORS = 20
_LONGEST_ERROR = 300


class Library:
    """One of the two, imported, with its logger and its plugin registry."""

    def __init__(self, name: str) -> None:
        """Raises: UnavailableError with the command that installs it."""
        self.name = name
        self.product = PRODUCTS[name]
        self.module = require(name, backend="tensorrt", install=INSTALL[name])
        self.version: str = self.module.__version__
        self.log = _new_log(self.module)
        self._plugins: set[Path] = set()
        self._lock = threading.Lock()

    def load_plugins(self, paths: Sequence[Path]) -> None:
        """Those of TensorRT itself, and the libraries; each once. Raises: InvalidArgumentError."""
        with self._lock:
            self.module.init_libnvinfer_plugins(self.log, "")
            registry = self.module.get_plugin_registry()
            for path in paths:
                if path in self._plugins:
                    continue
                check_whole(path)
                try:
                    handle = registry.load_library(str(path))
                except Exception as error:
                    raise InvalidArgumentError(_plugin_refusal(path, str(error))) from error
                if handle is None:
                    raise InvalidArgumentError(_plugin_refusal(path, self.log.last_error()))
                self._plugins.add(path)


def _plugin_refusal(path: Path, cause: str) -> str:
    return (
        f"plugin library '{path}' cannot be loaded: {cause or 'it registers no plugin'}; it must "
        "be built for this version of TensorRT"
    )


@cache
def library(name: str) -> Library:
    """Raises: UnavailableError."""
    return Library(name)


def preferred() -> Library:
    """TensorRT where it is installed, else TensorRT-RTX. Raises: UnavailableError."""
    try:
        return library(TENSORRT)
    except UnavailableError as missing:
        try:
            return library(TENSORRT_RTX)
        except UnavailableError as error:
            raise UnavailableError(f"{missing.message}; or {INSTALL[TENSORRT_RTX]}") from error


def _new_log(module: Any) -> Any:
    """An ILogger; its class can only be made when the runtime is there."""

    class Log(module.ILogger):  # type: ignore[misc]
        """Sends TensorRT's messages to ours, and keeps the last errors."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self._errors: deque[str] = deque(maxlen=_KEPT_ERRORS)
            severity = module.ILogger.Severity
            self._levels = {
                severity.INTERNAL_ERROR: logging.ERROR,
                severity.ERROR: logging.ERROR,
                severity.WARNING: logging.WARNING,
                severity.INFO: logging.DEBUG,
                severity.VERBOSE: logging.DEBUG,
            }

        def log(self, severity: Any, message: str) -> None:
            level = self._levels.get(severity, logging.DEBUG)
            if level == logging.ERROR:
                self._errors.append(message)
                level = logging.WARNING  # whoever asked says whether it is an error
            if logger.isEnabledFor(level):
                logger.log(level, "%s", message)

        def forget_errors(self) -> None:
            self._errors.clear()

        def last_error(self) -> str:
            """The newest one, short; empty where there is none."""
            return shortened(self._errors[-1]) if self._errors else ""

        def first_error(self) -> str:
            """The oldest since `forget_errors`: the cause, where others follow from it."""
            return shortened(self._errors[0]) if self._errors else ""

    return Log()


def shortened(text: str) -> str:
    """An error of TensorRT without its function names, source files and later lines.

    `IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (In x at /_src/y.cpp:25 (cause))`
    """
    line = " ".join(text.split())
    _, separator, rest = line.partition("Error Code ")
    if separator:
        line = rest.partition(": ")[2] or rest
    start = line.find("(In ")
    if start < 0:
        start = line.find(" In ")
    if start >= 0 and ".cpp" in line[start:]:
        head, tail = line[:start], line[start:]
        cause = tail.partition("(cudaError")[1:]
        line = head + ("".join(cause) if cause[0] else "")
    line = line.strip(" ():.")
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 3] + "..."
