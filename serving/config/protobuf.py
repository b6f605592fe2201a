"""Triton's ModelConfig messages (`pb`), without the weight of a gRPC library.

`tritonclient.grpc.model_config_pb2` needs protobuf only, but importing it the ordinary way runs the
package's own `__init__`, which imports grpc: 0.1 s and 20 MB in each child process of a model. The
module is loaded here under its full name instead, so that a later ordinary import finds the same
module and the messages are registered once. Imported by any thread; holds no state.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

_PACKAGE = "tritonclient.grpc"


def load_module(short_name: str) -> ModuleType:
    """One of the generated modules of the package, such as service_pb2."""
    name = f"{_PACKAGE}.{short_name}"
    known = sys.modules.get(name)
    if known is not None:
        return known
    package = importlib.util.find_spec("tritonclient")
    if package is None or not package.submodule_search_locations:
        raise ImportError("the package 'tritonclient' is missing: install 'tritonclient[grpc]'")
    path = Path(package.submodule_search_locations[0]) / "grpc" / f"{short_name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _standing_in():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _standing_in() -> Iterator[None]:
    """While it lasts, a module of the package that imports another one from the package gets it."""
    if _PACKAGE in sys.modules:
        yield
        return
    package = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
    prefix = f"{_PACKAGE}."
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        setattr(package, name.removeprefix(prefix), sys.modules[name])
    try:
        yield
    finally:
        del sys.modules[_PACKAGE]


if TYPE_CHECKING:
    from tritonclient.grpc import model_config_pb2 as pb
else:
    pb = load_module("model_config_pb2")

__all__ = ["pb"]
