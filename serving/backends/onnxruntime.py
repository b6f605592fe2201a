"""The ONNX Runtime backend.

One session for each device of a model version, shared by its instances: sessions are thread-safe
and `run` releases the GIL. The only file that imports onnxruntime, and only when a model needs it.
Load threads enter the backend and the model; an instance belongs to its thread. Behaviour after
spec ORT-01..17, AUT-03.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
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
from serving.backends.model_place import default_max_batch_size, model_path, refuse_decoupled
from serving.backends.model_signature import ModelSignature, ModelTensor, check, complete
from serving.backends.onnxruntime_options import SessionSettings, read_settings
from serving.backends.onnxruntime_signature import datatype_of
from serving.backends.runtimes import require
from serving.config.decode import InstanceKind, ModelSpec
from serving.config.signature import read_onnx_signature
from serving.errors import (
    BackendError,
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    ModelLoadError,
    error_from_code,
)
from serving.request import InferenceRequest

Array = NDArray[np.generic]
_SOURCE_PLACE = re.compile(r"\S+\.(?:h|cc|cpp|cu|cuh):\d+ (?:\w+ )?\S+\([^)]*\)(?: const)? ?")
"""`/onnxruntime_src/.../element_wise_ops.h:563 void onnxruntime::Init(ptrdiff_t, ptrdiff_t) `"""
_BF16_ONNX_TYPE = 16
_CUDA = "CUDAExecutionProvider"
_OPENVINO = "OpenVINOExecutionProvider"
_INSTALL = {
    _CUDA: "uninstall the package onnxruntime, then pip install 'conch[gpu]'",
    _OPENVINO: "uninstall the package onnxruntime, then pip install onnxruntime-openvino",
}


class OnnxRuntimeBackend(Backend):
    name = "onnxruntime"
    attributes = BackendAttributes(parallel_instance_loading=True)
    default_cpu_instance_count = 2
    default_model_filename = "model.onnx"

    def auto_complete(self, context: ModelContext) -> None:
        if context.config.input and context.config.output:
            return
        default_batch_size = default_max_batch_size(context.backend_config)
        path = _model_path(context)
        # Nothing is run: skip the optimisation, which is most of the time of opening a model.
        session = _open(
            path, SessionSettings(graph_level="ORT_DISABLE_ALL"), ["CPUExecutionProvider"]
        )
        complete(context.config, _signature(session, path), default_batch_size)

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        model = _OnnxModel(context, _model_path(context), read_settings(context))
        groups = context.spec.instance_groups
        wanted = {_device_of(group.kind, gpu) for group in groups for gpu in (group.gpus or (0,))}
        for device in wanted or {-1}:
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
                providers = _providers(self._settings, device)
                self._sessions[device] = _open(self._path, self._settings, providers)
            return self._sessions[device]

    def signature(self, device: int) -> ModelSignature:
        return _signature(self.session(device), self._path)

    def create_instance(self, placement: Placement) -> ModelInstance:
        device = _device_of(placement.kind, placement.device_id)
        return _OnnxInstance(
            self._context, self.session(device), self._settings, self.signature(device)
        )

    def unload(self) -> None:
        self._sessions.clear()


class _OnnxInstance(TensorInstance):
    def __init__(
        self,
        context: ModelContext,
        session: Any,
        settings: SessionSettings,
        signature: ModelSignature,
    ) -> None:
        super().__init__(context)
        self._session = session
        self._run_options = _run_options(settings)
        spec = context.spec
        inputs = spec.backend_inputs
        self._strings = [item.name for item in inputs.values() if item.datatype.is_bytes]
        self._scalar_inputs = _scalars(signature.inputs, spec)
        self._scalar_outputs = _scalars(signature.outputs, spec)
        tensors = (*inputs.values(), *self._outputs.values())
        self._has_bf16 = any(item.datatype.name == "BF16" for item in tensors)
        self._invalid_argument = _onnxruntime().capi.onnxruntime_pybind11_state.InvalidArgument

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
            text = f"model '{self._spec.name}' refused the request: {_cause(error)}"
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND) from error
        except Exception as error:
            raise BackendError(
                f"model '{self._spec.name}' failed to execute: {_cause(error)}"
            ) from error
        return dict(zip(output_names, map(self._as_output, output_names, outputs), strict=True))

    def _run(self, feed: dict[str, Array], output_names: Sequence[str]) -> Sequence[Any]:
        if not self._has_bf16:
            outputs: Sequence[Any] = self._session.run(output_names, feed, self._run_options)
            return outputs
        values = {name: _ort_value(array) for name, array in feed.items()}
        results = self._session.run_with_ort_values(output_names, values, self._run_options)
        return [_array_of(value) for value in results]

    def _as_output(self, name: str, array: Any) -> Array:
        if name in self._scalar_outputs:
            array = array.reshape(1)
        if self._outputs[name].datatype.is_bytes:
            encoded = [str(item).encode() for item in array.ravel()]
            flat = np.empty(len(encoded), dtype=np.object_)
            flat[:] = encoded
            array = flat.reshape(array.shape)
        result: Array = array
        return result

    def _decode_strings(self, request: InferenceRequest) -> bool:
        """ONNX Runtime takes text only. Answers the request and returns False where it is none."""
        for name in self._strings:
            tensor = request.inputs.get(name)
            if tensor is None:
                continue
            try:
                tensor.array = _decoded(tensor.array)
            except UnicodeDecodeError as error:
                request.respond_error(
                    InvalidArgumentError(
                        f"input '{name}' of model '{self._spec.name}' holds bytes that are no "
                        f"UTF-8 text ({error}): ONNX models take text only"
                    )
                )
                return False
        return True


def _onnxruntime() -> Any:
    return require("onnxruntime", backend="onnxruntime", install="pip install onnxruntime")


def _open(path: Path, settings: SessionSettings, providers: list[Any]) -> Any:
    ort = _onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads
    mode = ort.ExecutionMode
    options.execution_mode = mode.ORT_PARALLEL if settings.is_parallel else mode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = settings.use_mem_arena
    options.enable_mem_pattern = settings.use_mem_pattern
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, settings.graph_level)
    for key, value in settings.session_entries.items():
        options.add_session_config_entry(key, value)
    names = [item if isinstance(item, str) else item[0] for item in providers]
    try:
        for library in settings.custom_op_libraries:
            options.register_custom_ops_library(str(library))
        session = ort.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        cause = _cause(error).removeprefix(f"Load model from {path} failed:")
        raise ModelLoadError(
            f"onnxruntime cannot load {path.parent.name}/{path.name}: {cause}"
        ) from error
    if session.get_providers()[0] != names[0]:
        raise ModelLoadError(
            f"{path.parent.name}/{path.name}: onnxruntime could not use {names[0]} and fell back "
            f"to {session.get_providers()[0]}: check the driver and its libraries, or use KIND_CPU"
        )
    return session


def _providers(settings: SessionSettings, device: int) -> list[Any]:
    """Provider list for a GPU, or for the CPU where `device` is -1."""
    if device >= 0:
        _require_provider(_CUDA, "an instance group asks for KIND_GPU")
        return [(_CUDA, {**settings.cuda_options, "device_id": str(device)}), _cpu()]
    if settings.openvino_options is not None:
        _require_provider(_OPENVINO, "the config asks for the accelerator 'openvino'")
        return [(_OPENVINO, dict(settings.openvino_options)), _cpu()]
    return [_cpu()]


def _cpu() -> str:
    return "CPUExecutionProvider"


def _require_provider(name: str, why: str) -> None:
    available = _onnxruntime().get_available_providers()
    if name not in available:
        raise ModelLoadError(
            f"{why}, but the installed onnxruntime has no {name} (it has {', '.join(available)}): "
            f"{_INSTALL[name]}"
        )


def _model_path(context: ModelContext) -> Path:
    path = model_path(context, OnnxRuntimeBackend.default_model_filename, may_be_directory=True)
    # A model with external data may be a folder of that name with the file inside.
    return path / path.name if path.is_dir() else path


def _signature(session: Any, path: Path) -> ModelSignature:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    # ONNX Runtime shows scalars and tensors of unknown rank alike; the file tells them apart.
    unknown: frozenset[str] = frozenset()
    if any(not item.shape for item in (*inputs, *outputs)):
        file = read_onnx_signature(path)
        tensors = (*file.inputs, *file.outputs)
        unknown = frozenset(item.name for item in tensors if not item.is_rank_known)
    return ModelSignature(
        tuple(_tensor(item, unknown) for item in inputs),
        tuple(_tensor(item, unknown) for item in outputs),
        tuple(_tensor(item, unknown) for item in session.get_overridable_initializers()),
    )


def _tensor(item: Any, unknown_ranks: frozenset[str]) -> ModelTensor:
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in item.shape)
    is_rank_known = bool(shape) or item.name not in unknown_ranks
    return ModelTensor(item.name, datatype_of(item.type), shape, is_rank_known, item.type)


def _scalars(tensors: Sequence[ModelTensor], spec: ModelSpec) -> frozenset[str]:
    """Scalars of the model that the config gives one dimension, without a reshape."""
    wide = (*spec.backend_inputs.values(), *spec.backend_outputs.values())
    plain = {item.name for item in wide if item.dims == (1,) and item.reshape is None}
    if spec.has_batch_axis:
        return frozenset()
    return frozenset(item.name for item in tensors if item.is_scalar and item.name in plain)


def _device_of(kind: InstanceKind, device: int) -> int:
    return device if kind is InstanceKind.GPU else -1


def _run_options(settings: SessionSettings) -> Any:
    if not settings.run_entries:
        return None
    options = _onnxruntime().RunOptions()
    for key, value in settings.run_entries.items():
        options.add_run_config_entry(key, value)
    return options


def _decoded(array: Array) -> Array:
    flat = np.empty(array.size, dtype=np.object_)
    flat[:] = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return flat.reshape(array.shape)


def _ort_value(array: Array) -> Any:
    value = _onnxruntime().OrtValue
    if array.dtype.name == "bfloat16":
        bits = array.view(np.uint16)
        return value.ortvalue_from_numpy_with_onnx_type(bits, _BF16_ONNX_TYPE)
    return value.ortvalue_from_numpy(array)


def _array_of(value: Any) -> Array:
    """A copy of an OrtValue; `numpy()` of the runtime does not know BF16."""
    if value.element_type() != _BF16_ONNX_TYPE:
        array: Array = value.numpy()
        return array
    import ml_dtypes

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype=ml_dtypes.bfloat16)
    content = ctypes.string_at(value.data_ptr(), 2 * count)
    result: Array = np.frombuffer(content, dtype=ml_dtypes.bfloat16).reshape(shape)
    return result


def _cause(error: Exception) -> str:
    """The runtime's text without its code and the places in its sources."""
    text = str(error)
    if text.startswith("[ONNXRuntimeError]"):  # ... : 2 : INVALID_ARGUMENT : text
        text = text.split(" : ", 3)[-1]
    place = _SOURCE_PLACE.search(text)
    if place is not None:
        _, _, told = text[place.end() :].rpartition(" was false. ")
        text = text[: place.start()] + (told or text[place.end() :])
    return text.strip()
