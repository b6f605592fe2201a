"""The OpenVINO backend: IR (model.xml beside model.bin), ONNX and TensorFlow Lite files.

A model version is compiled once for each device and shared by its instances; each instance has an
infer request, and `infer` runs without the GIL. The only file that imports openvino, and only when
a model needs it. Load threads enter the backend and the model; an instance belongs to its thread.
Behaviour after Triton's OpenVINO backend. Source: spec OV-01.
"""

from __future__ import annotations

import sys
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
from serving.backends.model_place import (
    default_max_batch_size,
    failure_of,
    model_path,
    refuse_decoupled,
)
from serving.backends.model_signature import check, complete
from serving.backends.openvino_model import (
    as_batched,
    cause_of,
    check_one_sequence,
    fixed_batch,
    names_of,
    refuse_types,
    reshape,
    signature_of,
)
from serving.backends.openvino_options import OpenVinoSettings, read_settings
from serving.backends.runtimes import require
from serving.config.decode import InstanceGroup, InstanceKind, SchedulerKind
from serving.config.signature import read_onnx_signature
from serving.config.signature_openvino import read_openvino_signature
from serving.errors import (
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    ModelLoadError,
    error_from_code,
)
from serving.native_code import check_whole
from serving.request import InferenceRequest

Array = NDArray[np.generic]

_TFLITE_MARK = b"TFL3"


class OpenVinoBackend(Backend):
    name = "openvino"
    attributes = BackendAttributes(parallel_instance_loading=True)
    default_model_filename = "model.xml"

    def auto_complete(self, context: ModelContext) -> None:
        if context.config.input and context.config.output:
            return
        model = _read(_core(()), model_path(context, self.default_model_filename))
        rows = default_max_batch_size(context.backend_config)
        complete(context.config, signature_of(model), rows)

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        settings = read_settings(context)
        core = _core(settings.extensions)
        model = _read(core, model_path(context, self.default_model_filename))
        spec = context.spec
        refuse_types(spec, signature_of(model))
        reshape(model, spec, settings)
        names = spec.backend_inputs.keys() | spec.backend_outputs.keys()
        check(spec, as_batched(signature_of(model, names), spec, settings))
        loaded = _OpenVinoModel(context, core, model, settings)
        for group in spec.instance_groups:
            for device in _devices(settings, group):
                loaded.compiled(device)
        return loaded


class _OpenVinoModel(LoadedModel):
    def __init__(
        self, context: ModelContext, core: Any, model: Any, settings: OpenVinoSettings
    ) -> None:
        self._context = context
        self._core = core
        self._model = model
        self._settings = settings
        self._compiled: dict[str, Any] = {}
        self._lock = threading.Lock()

    def compiled(self, device: str) -> Any:
        """The model for `device`; compiled on first use."""
        with self._lock:
            if device not in self._compiled:
                self._compiled[device] = self._compile(device)
            return self._compiled[device]

    def _compile(self, device: str) -> Any:
        _require_device(self._core, device)
        properties = dict(self._settings.properties)
        count = sum(
            group.count
            for group in self._context.spec.instance_groups
            if device in _devices(self._settings, group)
        )
        if count > 1 and not properties.keys() & {"NUM_STREAMS", "PERFORMANCE_HINT"}:
            # With the one stream of the default, instances would wait for each other.
            properties["NUM_STREAMS"] = str(count)
        try:
            return self._core.compile_model(self._model, device, properties)
        except Exception as error:
            raise ModelLoadError(
                f"openvino cannot compile model '{self._context.spec.name}' for {device}: "
                f"{cause_of(error)}"
            ) from error

    def create_instance(self, placement: Placement) -> ModelInstance:
        device = _device(self._settings, placement.kind, placement.device_id)
        return _OpenVinoInstance(self._context, self.compiled(device), self._settings)

    def unload(self) -> None:
        self._compiled.clear()
        self._model = None


class _OpenVinoInstance(TensorInstance):
    def __init__(self, context: ModelContext, compiled: Any, settings: OpenVinoSettings) -> None:
        super().__init__(context)
        self._request = compiled.create_infer_request()
        self._inputs = _places(compiled.inputs)
        self._results = _places(compiled.outputs)
        spec = context.spec
        self._is_sequence = spec.scheduler is SchedulerKind.SEQUENCE
        self._ranks = {
            name: compiled.inputs[self._inputs[name]].partial_shape.rank
            for name in spec.backend_inputs
        }
        self._fixed_batch = fixed_batch(compiled, spec)
        self._pads = settings.pads_batches
        self._variables = self._request.query_state()
        """What the model remembers from one run to the next, in this instance."""
        if self._variables:
            check_one_sequence(spec)

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        if self._variables and (not self._is_sequence or requests[0].sequence_start):
            self._request.reset_state()
        super().execute(requests, times)

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        rows = len(next(iter(inputs.values()))) if self._fixed_batch else 0
        feed = {}
        for name, array in inputs.items():
            if self._fixed_batch:
                array = self._filled(array)
            rank = self._ranks.get(name)
            if rank is not None and rank.is_static and not rank.get_length():
                array = array.reshape(())  # a scalar: callers send one element
            feed[self._inputs[name]] = np.require(array, requirements=("C", "A"))
        try:
            # Copied in: the request would keep the callers' memory until its next run.
            self._request.infer(feed, share_inputs=False)
        except Exception as error:
            raise failure_of(self._spec.name, cause_of(error)) from error
        outputs = {}
        for name in output_names:
            array = self._request.get_output_tensor(self._results[name]).data
            dtype = self._outputs[name].datatype.dtype
            array = array[:rows] if rows else array
            outputs[name] = array.astype(dtype, copy=True).reshape(array.shape or (1,))
        return outputs

    def _filled(self, array: Array) -> Array:
        """At the model's own batch size; rows of zeros fill it up."""
        missing = self._fixed_batch - len(array)
        if not missing:
            return array
        if not self._pads:
            text = (
                f"model '{self._spec.name}' runs batches of {self._fixed_batch} only, and this one "
                f"has {len(array)}: fill it up, or set the parameter ENABLE_BATCH_PADDING to YES"
            )
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)
        return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])


def _openvino() -> Any:
    # Importing openvino reports the import to Intel, unless this package is absent.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return require("openvino", backend="openvino", install="pip install 'conch[openvino]'")


def _core(extensions: Sequence[Path]) -> Any:
    """A core for one model: extensions of one are not for the others."""
    core = _openvino().Core()
    for path in extensions:
        check_whole(path)
        try:
            core.add_extension(str(path))
        except Exception as error:
            raise ModelLoadError(
                f"parameter 'CPU_EXTENSION_PATH': openvino cannot use {path.name}: "
                f"{cause_of(error)}"
            ) from error
    return core


def _read(core: Any, path: Path) -> Any:
    file = f"{path.parent.name}/{path.name}"
    try:
        # OpenVINO tries a file that it does not know as every format there is, loudly.
        if path.suffix == ".xml":
            read_openvino_signature(path)
        elif path.suffix == ".onnx":
            read_onnx_signature(path)
        elif path.suffix != ".tflite":
            raise InvalidArgumentError(
                f"'{path}' is of no kind that the openvino backend reads: model.xml (with "
                "model.bin), .onnx or .tflite"
            )
        elif not _is_tflite(path):
            raise InvalidArgumentError(f"'{path}' is not a TensorFlow Lite model")
    except InvalidArgumentError as error:
        cause = error.message.replace(str(path), path.name)
        raise ModelLoadError(f"openvino cannot load {file}: {cause}") from error
    try:
        return core.read_model(str(path))
    except Exception as error:
        cause = cause_of(error).replace(f"{path.parent.parent}/", "")
        raise ModelLoadError(f"openvino cannot load {file}: {cause}") from error


def _is_tflite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8)[4:] == _TFLITE_MARK


def _places(ports: Sequence[Any]) -> dict[str, int]:
    return {name: index for index, port in enumerate(ports) for name in names_of(port)}


def _devices(settings: OpenVinoSettings, group: InstanceGroup) -> list[str]:
    return [_device(settings, group.kind, number) for number in group.gpus or (0,)]


def _device(settings: OpenVinoSettings, kind: InstanceKind, number: int) -> str:
    if kind is not InstanceKind.GPU:
        return settings.device
    if settings.device.startswith("GPU."):
        return settings.device
    return f"GPU.{number}" if number else "GPU"


def _require_device(core: Any, device: str) -> None:
    """Devices of Intel; a plain name is the first of its kind."""
    known = list(core.available_devices)
    family = device.partition(".")[0]
    has_several = device == family and any(item.startswith(f"{family}.") for item in known)
    if family not in ("CPU", "GPU", "NPU") or has_several:
        return
    if device not in known and device.removesuffix(".0") not in known:
        raise ModelLoadError(
            f"openvino finds no device {device}, only {', '.join(known)}: the GPUs that it runs on "
            "are Intel's, with Intel's compute runtime installed; set the parameter TARGET_DEVICE "
            "to CPU and instance_group to KIND_CPU"
        )
