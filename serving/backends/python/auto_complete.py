"""Runs a model's `auto_complete_config` in a process of its own, which ends afterwards (PB-002).

`complete_in_child` is called in a loading thread of the worker. `main` is the program of the
process: it reads a request on standard input and writes its result to a pipe, because the model
may print.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from serving import child_program
from serving.backends.base import ModelContext
from serving.backends.python import attributes, model_file, pb_utils
from serving.config.decode import decode
from serving.config.json_form import from_json, to_json
from serving.config.protobuf import pb
from serving.errors import ModelLoadError, ServingError

logger = logging.getLogger("serving.models")

TIMEOUT_S = 120.0
_HOOK = "auto_complete_config"
_MAX_TAIL_CHARACTERS = 2000


class _Request(msgspec.Struct):
    config: bytes
    version: int
    model_directory: str
    backend_config: dict[str, str]
    runtime_directory: str = ""


class _Result(msgspec.Struct):
    config: bytes = b""
    error: str = ""


def complete_in_child(context: ModelContext, timeout_s: float = TIMEOUT_S) -> None:
    """Replace `context.config` by what the model's auto_complete_config makes of it.

    Raises: ModelLoadError with the model's own words, or when the process died or hangs.
    """
    path = model_file.model_path(context)
    if not any(model_file.may_have_hook(path, hook) for hook in (_HOOK, attributes.HOOK)):
        return
    request = _Request(
        context.config.SerializeToString(),
        context.version,
        str(context.model_directory),
        dict(context.backend_config),
        "" if context.runtime_directory is None else str(context.runtime_directory),
    )
    result = _run(context, msgspec.msgpack.encode(request), timeout_s)
    if result.error:
        raise ModelLoadError(result.error)
    context.config.CopyFrom(pb.ModelConfig.FromString(result.config))


def _run(context: ModelContext, request: bytes, timeout_s: float) -> _Result:
    name = model_file.model_name(context)
    reader, writer = os.pipe()
    try:
        with open(reader, "rb") as results:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                child_program.command(
                    __name__, writer, os.getpid(), interpreter=context.interpreter
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(writer,),
                env=child_program.environment(context.interpreter),
                start_new_session=True,
            )
            os.close(writer)
            writer = -1
            return _await(process, name, request, timeout_s, results)
    finally:
        if writer >= 0:
            os.close(writer)


def _await(
    process: subprocess.Popen[bytes], name: str, request: bytes, timeout_s: float, results: Any
) -> _Result:
    try:
        out, err = process.communicate(request, timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise ModelLoadError(
            f"model '{name}': {_HOOK} did not return within {timeout_s:g} s; its process was ended"
        ) from None
    _log_lines(name, logging.INFO, out)
    _log_lines(name, logging.WARNING, err)
    data = results.read()
    if process.returncode == 0 and data:
        return msgspec.msgpack.decode(data, type=_Result)
    tail = err.decode("utf-8", "replace").strip()[-_MAX_TAIL_CHARACTERS:]
    ended = child_program.describe_exit(process.returncode)
    raise ModelLoadError(
        f"model '{name}': the process of {_HOOK} {ended}" + (f": {tail}" if tail else "")
    )


def _log_lines(name: str, level: int, output: bytes) -> None:
    for line in output.decode("utf-8", "replace").splitlines():
        logger.log(level, "%s %s: %s", name, _HOOK, line, extra={"model": name})


def _complete(context: ModelContext) -> bytes:
    name = model_file.model_name(context)
    model_class = model_file.import_model(context)
    attributes.apply(model_class, context)
    hook = getattr(model_class, _HOOK, None)
    if hook is None:
        return bytes(context.config.SerializeToString())
    given = pb_utils.ModelConfig(json.dumps(to_json(context.config)))
    returned = model_file.call(_HOOK, context, hook, given)
    if not isinstance(returned, pb_utils.ModelConfig):
        raise ModelLoadError(
            f"model '{name}': {_HOOK} must return the pb_utils.ModelConfig that it "
            f"was given, found type '{type(returned).__name__}'"
        )
    try:
        return bytes(from_json(json.dumps(returned.as_dict())).SerializeToString())
    except (ServingError, TypeError) as error:
        raise ModelLoadError(
            f"model '{name}': {_HOOK} made a config that is not valid: {error}"
        ) from error


def main() -> int:
    writer, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    child_program.die_with_parent(parent_pid)
    logging.basicConfig(level=logging.DEBUG, format="%(message)s")
    os.set_inheritable(writer, False)
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Request)
    config = pb.ModelConfig.FromString(request.config)
    context = ModelContext(
        decode(pb.ModelConfig(name=config.name)),  # the real one may be incomplete
        config,
        request.version,
        Path(request.model_directory),
        request.backend_config,
        runtime_directory=Path(request.runtime_directory) if request.runtime_directory else None,
    )
    try:
        result = _Result(config=_complete(context))
    except ServingError as error:
        result = _Result(error=error.message)
    with open(writer, "wb") as results:
        results.write(msgspec.msgpack.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
