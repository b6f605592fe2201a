"""Environments of Python models: which interpreter runs a model, made ready before it loads.

In order: the parameter EXECUTION_ENV_PATH (a directory, or a tar archive as conda-pack makes it),
the archive that a Python-based backend ships, a requirements.txt beside the model. What has to be
unpacked or built is kept in a cache directory, once for all models that share it, under a lock.
Blocks; loading threads of the worker only. Source: spec PB-060, PB-061, BE-010.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from serving.backends.base import ModelContext
from serving.backends.python import settings
from serving.backends.python.environment_cache import EnvironmentCache, Lease
from serving.child_program import Interpreter, without_own_settings
from serving.errors import ModelLoadError

logger = logging.getLogger("serving.models")

PARAMETER = "EXECUTION_ENV_PATH"
REQUIREMENTS = "requirements.txt"
BACKEND_ARCHIVE = "pb_exec_env_model.py.tar.gz"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_STUB = "triton_python_backend_stub"
_PROBE_S = 60.0
_BUILD_S = 3600.0
_MIN_VERSION = (3, 11)
_NEEDED = ("numpy", "msgspec", "ml_dtypes", "google.protobuf")
_PROBE = """
import importlib.util, json, sys
def lacks(name):
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True
print(json.dumps([list(sys.version_info[:2]), [n for n in sys.argv[1:] if lacks(n)]]))
"""
Tell = Callable[[], object]


def prepare(context: ModelContext, tell: Tell) -> Interpreter | None:
    """None: the interpreter of the server. `tell` is called when it takes a while.

    Raises: ModelLoadError with the cause.
    """
    if (context.model_directory / _STUB).exists():
        logger.warning(
            "model '%s': its %s is not used; name an environment in %s to choose an interpreter",
            context.spec.name,
            _STUB,
            PARAMETER,
        )
    named = context.spec.parameters.get(PARAMETER, "")
    if named:
        path = _resolve(named, context)
        if path.is_dir():
            return _interpreter(path, None, context)
        return _interpreter(*_unpacked(path, context, tell), context)
    if context.runtime_directory is not None:
        archive = context.runtime_directory / BACKEND_ARCHIVE
        if archive.is_file():
            return _interpreter(*_unpacked(archive, context, tell), context)
    for folder in (context.version_directory, context.model_directory):
        requirements = folder / REQUIREMENTS
        if requirements.is_file():
            return _interpreter(*_built(requirements, context, tell), context)
    return None


def cache_directory(context: ModelContext) -> Path:
    """The backend config `environment-directory`, or conch/environments in the user's cache."""
    given = context.backend_config.get("environment-directory")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "conch" / "environments"


def _resolve(named: str, context: ModelContext) -> Path:
    path = Path(named.replace(_MODEL_DIRECTORY, str(context.model_directory), 1))
    if not path.is_absolute():
        raise _refused(
            context,
            f"{PARAMETER} '{named}' is neither an absolute path nor one that starts with "
            f"{_MODEL_DIRECTORY}",
        )
    if not path.exists():
        raise _refused(context, f"{PARAMETER} '{named}': there is nothing at {path}")
    return path


def _interpreter(directory: Path, lease: Lease | None, context: ModelContext) -> Interpreter:
    python = directory / "bin" / "python"
    if not python.is_file():
        raise _refused(
            context,
            f"the environment {directory} has no bin/python: it must be a virtual environment, or "
            "what conda-pack makes of a conda environment",
        )
    activate = directory / "bin" / "activate"
    version, lacks = _probe(python, context)
    is_own = version == sys.version_info[:2]
    shown = ".".join(map(str, version))
    if version < _MIN_VERSION:
        raise _refused(context, f"its environment has Python {shown}; 3.11 or newer is needed")
    if not is_own and lacks:
        raise _refused(
            context,
            f"its environment has Python {shown} and the server runs {sys.version_info[0]}."
            f"{sys.version_info[1]}, so it needs packages of its own: install {', '.join(lacks)} "
            "there",
        )
    script = str(activate) if activate.is_file() else ""
    return Interpreter(str(python), script, is_own, lease)


def _probe(python: Path, context: ModelContext) -> tuple[tuple[int, ...], list[str]]:
    """The version, and which of the packages that the core needs are not there."""
    command = [str(python), "-I", "-c", _PROBE, *_NEEDED]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=True)  # noqa: S603
        version, lacks = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise _refused(context, f"{python} does not run: {_output_of(error)}") from error
    return tuple(version), list(lacks)


def _unpacked(archive: Path, context: ModelContext, tell: Tell) -> tuple[Path, Lease]:
    status = archive.stat()
    key = f"archive {archive.resolve()} {status.st_mtime_ns} {status.st_size}"

    def fill(target: Path) -> None:
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(target, filter="tar")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise _refused(context, f"{archive} cannot be unpacked: {error}") from error
        mend = target / "bin" / "conda-unpack"
        if mend.is_file():
            # It writes the place where it lies into scripts, so it runs in the final one.
            _run([str(target / "bin" / "python"), str(mend)], target, context)

    return _cached(key, fill, context, tell, f"unpacking {archive.name}")


def _built(requirements: Path, context: ModelContext, tell: Tell) -> tuple[Path, Lease]:
    wheels = [
        f"{item.name} {item.stat().st_mtime_ns} {item.stat().st_size}"
        for item in sorted(requirements.parent.rglob("*.whl"))
    ]
    key = "\n".join([requirements.read_text("utf-8", "replace"), sys.version, sys.prefix, *wheels])

    def fill(target: Path) -> None:
        _run([sys.executable, "-m", "venv", str(target)], requirements.parent, context)
        pip = [str(target / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        install = ["install", "--no-input", "-r", str(requirements)]
        _run([*pip, *install], requirements.parent, context)

    return _cached(f"venv {key}", fill, context, tell, f"installing {requirements.name}")


def _cached(
    key: str, fill: Callable[[Path], None], context: ModelContext, tell: Tell, what: str
) -> tuple[Path, Lease]:
    """The directory for the key; `fill` makes it unless it has been made."""
    root = cache_directory(context)

    def make(target: Path) -> None:
        logger.info("%s: %s", context.spec.name, what, extra={"model": context.spec.name})
        fill(target)

    try:
        return EnvironmentCache(root, settings.keep_days(context.backend_config)).get(
            key, make, tell
        )
    except OSError as error:
        raise _refused(context, f"its environment cannot be made in {root}: {error}") from error


def _run(command: list[str], directory: Path, context: ModelContext) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - what the owner of the model asks for
            command,
            cwd=directory,
            env=without_own_settings(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_BUILD_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _refused(context, f"making its environment failed: {_output_of(error)}") from error
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        logger.info("%s: %s", context.spec.name, line, extra={"model": context.spec.name})


def _output_of(error: Exception) -> str:
    """The last words of the program, or what kept it from running."""
    output = getattr(error, "stderr", None) or getattr(error, "stdout", None) or b""
    text: str = output.decode("utf-8", "replace").strip()[-2000:]
    return text or str(error)


def _refused(context: ModelContext, reason: str) -> ModelLoadError:
    return ModelLoadError(f"model '{context.config.name or context.spec.name}': {reason}")
