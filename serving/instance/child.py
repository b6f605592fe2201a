"""Main program of an instance process: hosts one model instance of any backend.

Started as `python -m serving.instance.child SOCKET_DESCRIPTOR PARENT_PID NAME`; everything else
comes over the socket, the name is for people. The main thread loads and executes. The process dies
with its parent.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from serving.backends.base import Backend, ModelContext, Placement
from serving.child_program import die_with_parent
from serving.config.decode import InstanceKind, decode
from serving.config.protobuf import pb
from serving.errors import InternalError, ServingError
from serving.instance import wire
from serving.instance.child_calls import ChildCalls
from serving.instance.child_link import ChildLink
from serving.instance.child_server import InstanceServer, describe_exception
from serving.instance.codec import error_header, wire_text

_decode_load = msgspec.msgpack.Decoder(wire.Load).decode


class WireLogHandler(logging.Handler):
    """Sends the core's own log records to the worker; the model's stay on its standard error."""

    def __init__(self, link: ChildLink) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        message = wire.Log(record.levelno, wire_text(self.format(record)))
        with contextlib.suppress(OSError):  # the worker is gone, and this process with it
            self._link.send(wire.Kind.LOG, message)


def _context_of(load: wire.Load) -> ModelContext:
    config = pb.ModelConfig.FromString(load.config)
    return ModelContext(
        decode(config),
        config,
        load.version,
        Path(load.model_directory),
        load.backend_config,
        runtime_directory=Path(load.runtime_directory) if load.runtime_directory else None,
    )


def _backend(name: str, source: str) -> Backend:
    """From a file, or as `module:Class`, which costs no import of the registry."""
    module, _, class_name = source.partition(":")
    if class_name and not source.startswith("/"):
        made: Backend = getattr(importlib.import_module(module), class_name)()
    else:
        registry = importlib.import_module("serving.backends.registry")
        made = registry.create(name, source)
    return made


def _load(link: ChildLink, load: wire.Load) -> tuple[InstanceServer, Backend]:
    context = _context_of(load)
    server = InstanceServer(link, context)
    server.context = replace(context, child=ChildCalls(link, server.number_of))
    backend = _backend(context.spec.backend, load.backend)
    backend.initialize(context.backend_config)
    kind = InstanceKind(load.instance_kind)
    server.load(backend, Placement(load.instance_name, kind, load.device_id))
    return server, backend


def main() -> int:
    descriptor, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    os.set_inheritable(descriptor, False)
    link = ChildLink(socket.socket(fileno=descriptor))
    core_logger = logging.getLogger("serving")
    core_logger.addHandler(WireLogHandler(link))
    core_logger.setLevel(logging.DEBUG)
    core_logger.propagate = False
    loads: list[wire.Frame] = []
    link.handlers[wire.Kind.LOAD] = loads.append
    if not link.wait_for(lambda: loads):
        return 1
    try:
        server, backend = _load(link, _decode_load(loads.pop().header))
    except ServingError as error:
        failure = error
    except Exception as error:  # whatever model code raises while it loads
        failure = InternalError(f"failed to load: {describe_exception(error)}")
    else:
        link.send(wire.Kind.LOADED, wire.Loaded(os.getpid(), server.has_ready_hook))
        gc.collect()
        gc.freeze()
        server.serve()
        if server.lost:
            sys.stderr.write(f"{server.lost}\n")
            sys.stderr.flush()
            os._exit(1)  # what is left of a GPU's context would hang or crash at a tidy end
        backend.finalize()
        return 0
    link.send(wire.Kind.LOAD_FAILED, wire.LoadFailed(error_header(failure)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
