"""Triton's ModelConfig messages (`pb`), without the weight of a gRPC library.

`tritonclient.grpc.model_config_pb2` needs protobuf only, but importing it the ordinary way runs the
package's own `__init__`, which imports grpc: 0.1 s and 20 MB in each child process of a model. The
module is loaded here under its full name instead, so that a later ordinary import finds the same
module and the messages are registered once. Imported by any thread; holds no state.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

_NAME = "tritonclient.grpc.model_config_pb2"


def _load() -> ModuleType:
    known = sys.modules.get(_NAME)
    if known is not None:
        return known
    package = importlib.util.find_spec("tritonclient")
    if package is None or not package.submodule_search_locations:
        raise ImportError("the package 'tritonclient' is missing: install 'tritonclient[grpc]'")
    path = Path(package.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {_NAME}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_NAME]
        raise
    return module


if TYPE_CHECKING:
    from tritonclient.grpc import model_config_pb2 as pb
else:
    pb = _load()

__all__ = ["pb"]
