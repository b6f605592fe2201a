"""The backend that a shared library is: its objects, and executing batches.

Load threads enter backend and model, an instance belongs to its thread. The library is opened when
a process loads its first model: the server's own never does for instances in processes of their
own. Source: spec BE-001..009, conch_backend.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
)
from serving.backends.factory import ResponseFactory
from serving.backends.native import abi
from serving.backends.native.library import Library, check_file
from serving.backends.native.running import Host, Running, request_addresses
from serving.backends.native.tensors import RequestMemory
from serving.config.json_form import to_json
from serving.request import InferenceRequest
from serving.response import InferenceResponse

_kept: list[Host] = []
"""Libraries stay opened: what threads of theirs may call must stay, too."""


def open_backend(name: str, path: Path) -> Backend:
    """Raises: UnsupportedError for a file that is no backend for Conch."""
    check_file(name, path)
    return NativeBackend(name, path)


class NativeBackend(Backend):
    def __init__(self, name: str, path: Path) -> None:
        self.name = name  # type: ignore[misc]
        self._path = path
        self._config: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._host = Host(name)
        self.structure = abi.Backend()
        self._settings: ctypes.Array[abi.Setting] | None = None

    def initialize(self, config: Mapping[str, str]) -> None:
        self._config = config

    def finalize(self) -> None:
        with self._lock:
            library, self._library = self._library, None
        if library is not None:
            library.tell("conch_backend_finalize", ctypes.addressof(self.structure))

    def load(self, context: ModelContext) -> LoadedModel:
        return NativeModel(context, self._opened(), self._host, self.structure)

    def _opened(self) -> Library:
        """Raises: ServingError when the library cannot be opened or initialised; the next load
        tries again (BE-003)."""
        with self._lock:
            if self._library is None:
                library = Library(self._path)
                self.attributes = library.attributes()  # type: ignore[misc]
                self.structure = self._described()
                where = f"backend '{self.name}' could not be initialised"
                library.call("conch_backend_initialize", where, ctypes.addressof(self.structure))
                self._library = library
                _kept.append(self._host)
            return self._library

    def _described(self) -> abi.Backend:
        pairs = [(key.encode(), value.encode()) for key, value in self._config.items()]
        self._settings = (abi.Setting * len(pairs))(*(abi.Setting(*pair) for pair in pairs))
        return abi.Backend(
            host=ctypes.addressof(self._host.structure),
            name=self.name.encode(),
            library=os.fsencode(self._path),
            setting_count=len(pairs),
            settings=ctypes.addressof(self._settings),
        )


class NativeModel(LoadedModel):
    def __init__(
        self, context: ModelContext, library: Library, host: Host, backend: abi.Backend
    ) -> None:
        """Raises: ServingError with what conch_model_initialize says."""
        spec = context.spec
        self.context = context
        self.library = library
        self.host = host
        self.structure = abi.Model(
            backend=ctypes.addressof(backend),
            name=spec.name.encode(),
            version=context.version,
            model_directory=os.fsencode(context.model_directory),
            version_directory=os.fsencode(context.version_directory),
            config=json.dumps(to_json(context.config)).encode(),
            is_decoupled=spec.is_decoupled,
            max_batch_size=spec.max_batch_size,
        )
        where = f"backend '{spec.backend}'"
        library.call("conch_model_initialize", where, ctypes.addressof(self.structure))

    def create_instance(self, placement: Placement) -> ModelInstance:
        return NativeInstance(self, placement)

    def unload(self) -> None:
        self.library.tell("conch_model_finalize", ctypes.addressof(self.structure))


class NativeInstance(ModelInstance):
    def __init__(self, model: NativeModel, placement: Placement) -> None:
        """Raises: ServingError with what conch_instance_initialize says."""
        context = model.context
        self._model = model
        self._spec = context.spec
        self._name = placement.instance_name
        self._structure = abi.Instance(
            model=ctypes.addressof(model.structure),
            name=placement.instance_name.encode(),
            kind=abi.KINDS.get(placement.kind, 0),
            device=context.cuda_number(placement),
        )
        self._call("conch_instance_initialize", f"backend '{self._spec.backend}'")

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        if not self._spec.is_decoupled:
            with _answered_at_the_end(requests):
                self._execute(requests)
        else:
            self._execute(requests)

    def _execute(self, requests: Sequence[InferenceRequest]) -> None:
        memories = [RequestMemory(request, self._spec) for request in requests]
        for request, memory in zip(requests, memories, strict=True):
            factory = ResponseFactory(self._spec, self._model.context.version, request)
            self._model.host.begin(Running(memory, factory, self._spec))
        pointers = request_addresses(memories)
        is_over = not self._spec.is_decoupled
        try:
            where = f"model '{self._spec.name}' failed to execute"
            address = ctypes.addressof(pointers)
            self._call("conch_instance_execute", where, address, len(memories))
        except BaseException:
            is_over = True
            raise
        finally:
            if is_over:
                for memory in memories:
                    self._model.host.end(memory.address)

    @property
    def has_ready_hook(self) -> bool:
        return self._model.library.has("conch_instance_ready")

    def is_ready(self) -> bool:
        self._call("conch_instance_ready", f"instance '{self._name}' is not ready")
        return True

    def close(self) -> None:
        address = ctypes.addressof(self._structure)
        self._model.library.tell("conch_instance_finalize", address)

    def _call(self, name: str, where: str, *arguments: int) -> None:
        address = ctypes.addressof(self._structure)
        self._model.library.call(name, where, address, *arguments)


@contextlib.contextmanager
def _answered_at_the_end(requests: Sequence[InferenceRequest]) -> Iterator[None]:
    """Any thread of the library may answer; hosts want the answers from the instance's own, before
    the end of the execution."""
    answers: list[tuple[InferenceRequest, InferenceResponse]] = []
    responders = [request.responder for request in requests]
    for request in requests:
        request.responder = lambda request, response: answers.append((request, response))
    try:
        yield
    finally:
        for request, responder in zip(requests, responders, strict=True):
            request.responder = responder
        for request, response in answers:
            request.respond(response)
