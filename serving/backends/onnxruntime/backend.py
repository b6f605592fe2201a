"""The ONNX Runtime backend: loads a model version, and runs it.

One session for each device of a model version, shared by its instances: sessions are thread-safe
and `run` releases the GIL. Load threads enter the backend and the model; an instance belongs to
its thread. Behaviour after spec ORT-01..17, AUT-03.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.attributes import BackendAttributes
from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    TensorInstance,
)
from serving.backends.model_place import (
    default_max_batch_size,
    failure_of,
    model_path,
    refuse_decoupled,
)
from serving.backends.model_signature import ModelSignature, ModelTensor, check, complete
from serving.backends.onnxruntime import session as sessions
from serving.backends.onnxruntime import values
from serving.backends.onnxruntime.options import (
    SHRINKAGE,
    SessionSettings,
    global_threads,
    read_settings,
)
from serving.config.decode import InstanceKind, ModelSpec
from serving.errors import (
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    UnsupportedError,
    error_from_code,
)
from serving.request import InferenceRequest

Array = NDArray[np.generic]

logger = logging.getLogger(__name__)


class OnnxRuntimeBackend(Backend):
    name = "onnxruntime"
    attributes = BackendAttributes(parallel_instance_loading=True)
    default_cpu_instance_count = 2
    default_model_filename = "model.onnx"

    def initialize(self, config: Mapping[str, str]) -> None:
        sessions.share_threads(config)

    def auto_complete(self, context: ModelContext) -> None:
        if context.config.input and context.config.output:
            return
        default_batch_size = default_max_batch_size(context.backend_config)
        path = _model_path(context)
        # Nothing is run: skip the optimisation, which is most of the time of opening a model.
        settings = SessionSettings(
            graph_level="ORT_DISABLE_ALL",
            shares_threads=global_threads(context.backend_config) is not None,
        )
        session = sessions.open_session(path, settings, [sessions.CPU])
        complete(context.config, sessions.signature_of(session, path), default_batch_size)

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        settings = read_settings(context)
        model = _OnnxModel(context, _model_path(context), settings)
        _warn_of_no_effect(context, settings)
        for device in _devices(context) or {-1}:
            check(context.spec, model.signature(device))
        return model


class _OnnxModel(LoadedModel):
    def __init__(self, context: ModelContext, path: Path, settings: SessionSettings) -> None:
        self._context = context
        self._path = path
        self._settings = settings
        self._sessions: dict[int, Any] = {}
        self._lock = threading.Lock()

    def session(self, device: int) -> Any:
        """The session of GPU `device`, or of the CPU for -1; opened on first use."""
        with self._lock:
            if device not in self._sessions:
                providers = sessions.providers_of(self._settings, device)
                opened = sessions.open_session(self._path, self._settings, providers)
                self._sessions[device] = opened
            return self._sessions[device]

    def signature(self, device: int) -> ModelSignature:
        return sessions.signature_of(self.session(device), self._path)

    def create_instance(self, placement: Placement) -> ModelInstance:
        device = _device_of(placement.kind, self._context.cuda_number(placement))
        named = _device_of(placement.kind, placement.device_id)
        options = sessions.run_options(self._settings, device, named)
        session, signature = self.session(device), self.signature(device)
        return _OnnxInstance(self._context, session, options, signature, device)

    def unload(self) -> None:
        self._sessions.clear()


class _OnnxInstance(TensorInstance):
    def __init__(
        self,
        context: ModelContext,
        session: Any,
        run_options: Any,
        signature: ModelSignature,
        device: int,
    ) -> None:
        super().__init__(context)
        self._session = session
        self._run_options = run_options
        self._ort = sessions.runtime()
        spec = context.spec
        self._strings = [x.name for x in spec.backend_inputs.values() if x.datatype.is_bytes]
        self._scalar_inputs = _scalars(signature.inputs, spec)
        self._scalar_outputs = _scalars(signature.outputs, spec)
        self._raw_inputs = values.raw_types((*signature.inputs, *signature.optional_inputs))
        raw_outputs = values.raw_types(signature.outputs).keys() & self._outputs.keys()
        texts = {item.name for item in self._outputs.values() if item.datatype.is_bytes}
        self._has_raw = bool(raw_outputs or self._raw_inputs.keys() & spec.backend_inputs.keys())
        if self._has_raw and (self._strings or texts):
            raise UnsupportedError(
                f"model '{spec.name}' has tensors of text beside BF16 or FP8, which ONNX Runtime "
                "cannot be given together: export it with FP32 or FP16 instead"
            )
        self._bound: values.BoundRun | None = None
        if device >= 0 and not self._strings:
            host = frozenset(raw_outputs | texts)
            self._bound = values.BoundRun(self._ort, session, ("cuda", device), host)
        self._invalid_argument = self._ort.capi.onnxruntime_pybind11_state.InvalidArgument

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        if self._strings:
            requests = [request for request in requests if self._decode_strings(request)]
        if requests:
            super().execute(requests, times)

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        feed = {
            name: array if array.flags.aligned and array.flags.c_contiguous else array.copy()
            for name, array in inputs.items()
        }
        for name in self._scalar_inputs:
            if name in feed:
                feed[name] = feed[name].reshape(())
        try:
            outputs = self._run(feed, output_names)
        except self._invalid_argument as error:
            # The tensors do not fit the model's own dimensions: the caller's doing.
            text = f"model '{self._spec.name}' refused the request: {sessions.cause(error)}"
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND) from error
        except Exception as error:
            raise failure_of(self._spec.name, sessions.cause(error)) from error
        return dict(zip(output_names, map(self._as_output, output_names, outputs), strict=True))

    def _run(self, feed: dict[str, Array], output_names: Sequence[str]) -> Sequence[Any]:
        if self._bound is not None:
            return self._bound(feed, self._raw_inputs, output_names, self._run_options)
        if not self._has_raw:
            outputs: Sequence[Any] = self._session.run(output_names, feed, self._run_options)
            return outputs
        given = {
            name: values.value_of(self._ort, array, self._raw_inputs.get(name))
            for name, array in feed.items()
        }
        results = self._session.run_with_ort_values(output_names, given, self._run_options)
        return [values.array_of(value) for value in results]

    def _as_output(self, name: str, array: Any) -> Array:
        if name in self._scalar_outputs:
            array = array.reshape(1)
        result: Array = array
        return values.encoded(result) if self._outputs[name].datatype.is_bytes else result

    def _decode_strings(self, request: InferenceRequest) -> bool:
        """ONNX Runtime takes text only. Answers the request and returns False where it is none."""
        for name in self._strings:
            tensor = request.inputs.get(name)
            if tensor is None:
                continue
            try:
                tensor.array = values.decoded(tensor.array)
            except UnicodeDecodeError as error:
                request.respond_error(
                    InvalidArgumentError(
                        f"input '{name}' of model '{self._spec.name}' holds bytes that are no "
                        f"UTF-8 text ({error}): ONNX models take text only"
                    )
                )
                return False
        return True


def _model_path(context: ModelContext) -> Path:
    path = model_path(context, OnnxRuntimeBackend.default_model_filename, may_be_directory=True)
    # A model with external data may be a folder of that name with the file inside.
    return path / path.name if path.is_dir() else path


def _scalars(tensors: Sequence[ModelTensor], spec: ModelSpec) -> frozenset[str]:
    """Scalars of the model that the config gives one dimension, without a reshape."""
    wide = (*spec.backend_inputs.values(), *spec.backend_outputs.values())
    plain = {item.name for item in wide if item.dims == (1,) and item.reshape is None}
    if spec.has_batch_axis:
        return frozenset()
    return frozenset(item.name for item in tensors if item.is_scalar and item.name in plain)


def _devices(context: ModelContext) -> set[int]:
    """Of all instance groups, as `_device_of` counts."""
    return {
        _device_of(group.kind, context.cuda_number(Placement(group.name, group.kind, gpu)))
        for group in context.spec.instance_groups
        for gpu in (group.gpus or (0,))
    }


def _warn_of_no_effect(context: ModelContext, settings: SessionSettings) -> None:
    """What is asked of devices on which no instance runs is not done, and the log says so."""
    groups = context.spec.instance_groups
    arenas = {"cpu:0"} if settings.use_mem_arena else set()
    gpus = {
        f"gpu:{gpu}"
        for group in groups
        if group.kind is InstanceKind.GPU
        for gpu in (group.gpus or (0,))
    }
    accelerators = context.config.optimization.execution_accelerators
    unused = []
    if not gpus:
        unused += [f"accelerator {x.name}" for x in accelerators.gpu_execution_accelerator]
    if groups and all(group.kind is InstanceKind.GPU for group in groups):
        unused += [f"accelerator {x.name}" for x in accelerators.cpu_execution_accelerator]
    wanted = settings.run_entries.get(SHRINKAGE, "").split(";")
    unused += [f"{SHRINKAGE} {x}" for x in wanted if x and x not in arenas | gpus]
    if unused:
        logger.warning(
            "the config asks for %s, and no instance runs on such a device: no effect model=%s",
            ", ".join(unused),
            context.spec.name,
        )


def _device_of(kind: InstanceKind, device: int) -> int:
    return device if kind is InstanceKind.GPU else -1
