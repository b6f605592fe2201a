"""The TensorFlow backend: SavedModels and frozen graphs, run in sessions.

Models are loaded by the session loader of TensorFlow 1, like Triton does: it runs every SavedModel,
where the loader of TensorFlow 2 stumbles over what training left in it. Sessions are thread-safe
and run without the GIL. The only file that imports tensorflow, and only when a model needs it. Load
threads enter the backend and the model; an instance belongs to its thread. Source: spec TF-01.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from serving.backends.attributes import BackendAttributes
from serving.backends.base import (
    Backend,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    TensorInstance,
)
from serving.backends.model_place import default_max_batch_size, model_path, refuse_decoupled
from serving.backends.model_signature import ModelSignature, ModelTensor, check, complete
from serving.backends.runtimes import require
from serving.backends.tensorflow_options import TensorFlowSettings, read_settings
from serving.config.decode import InstanceKind, ModelSpec, TensorSpec
from serving.config.signature_tensorflow import read_savedmodel_signature
from serving.datatypes import BY_DTYPE, BY_NAME, DataType
from serving.errors import (
    BackendError,
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    error_from_code,
)

Array = NDArray[np.generic]
_GRAPHDEF = "tensorflow_graphdef"
_FILES = {"tensorflow_savedmodel": "model.savedmodel", _GRAPHDEF: "model.graphdef"}
_NODE = re.compile(r"\{\{.*?\}\}\s*")
"""Where in the graph an error arose: {{function_node ...}}{{node x}}."""
_MOST_NAMES = 10
_NO_GPU = -1
_NO_PLACE = -2
"""Of KIND_MODEL: the graph says itself where its operations run."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A graph in a session, and where its inputs and outputs are."""

    session: Any
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


class TensorFlowBackend(Backend):
    name = "tensorflow"
    attributes = BackendAttributes(parallel_instance_loading=True)
    default_cpu_instance_count = 2
    default_model_filename = _FILES["tensorflow_savedmodel"]

    def auto_complete(self, context: ModelContext) -> None:
        config = context.config
        if config.input and config.output:
            return
        if config.platform == _GRAPHDEF:
            raise InvalidArgumentError(
                f"model '{config.name}' is a frozen graph, which does not say what of it are inputs"
                " and outputs: give `input` and `output` in the config"
            )
        path = _path(context)
        signature = _saved_signature(path, read_settings(context).signature)
        complete(config, signature, default_max_batch_size(context.backend_config))

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        settings, path = read_settings(context), _path(context)
        _tensorflow()
        model = _TensorFlowModel(context, path, settings)
        if context.config.platform != _GRAPHDEF:
            check(context.spec, _saved_signature(path, settings.signature))
        groups = context.spec.instance_groups
        for device in {_device(group.kind, gpu) for group in groups for gpu in group.gpus or (0,)}:
            model.open(device)
        return model


class _TensorFlowModel(LoadedModel):
    def __init__(self, context: ModelContext, path: Path, settings: TensorFlowSettings) -> None:
        self._context = context
        self._path = path
        self._settings = settings
        self._open: dict[int, tuple[_Loaded, int]] = {}
        """Device -> the session that the next instance joins, and how many more may."""
        self._sessions: list[Any] = []
        self._lock = threading.Lock()

    def open(self, device: int) -> None:
        """Open the first session of a device, so that what is wrong fails the load."""
        with self._lock:
            if device not in self._open:
                self._open[device] = self._new(device)

    def _new(self, device: int) -> tuple[_Loaded, int]:
        loaded = _load(self._context, self._path, self._settings, device)
        self._sessions.append(loaded.session)
        return loaded, self._settings.instances_per_session

    def create_instance(self, placement: Placement) -> ModelInstance:
        device = _device(placement.kind, self._context.cuda_number(placement))
        with self._lock:
            loaded, places = self._open.get(device, (None, 0))
            if loaded is None or not places:
                loaded, places = self._new(device)
            self._open[device] = (loaded, places - 1)
        return _TensorFlowInstance(self._context, loaded)

    def unload(self) -> None:
        self._open.clear()
        for session in self._sessions:
            session.close()
        self._sessions.clear()


class _TensorFlowInstance(TensorInstance):
    def __init__(self, context: ModelContext, loaded: _Loaded) -> None:
        super().__init__(context)
        self._loaded = loaded
        self._calls: dict[tuple[str, ...], tuple[Sequence[str], Callable[..., Any]]] = {}
        """Prepared runs, by the outputs and inputs that are wanted and given."""
        self._scalar_inputs = _scalars(loaded.inputs, context.spec.backend_inputs)
        self._scalar_outputs = _scalars(loaded.outputs, context.spec.backend_outputs)
        errors = _tensorflow().errors
        self._callers_errors = (errors.InvalidArgumentError, ValueError)

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        names, call = self._call(tuple(inputs), tuple(output_names))
        fed = [inputs[name] for name in names]
        fed = [
            array.reshape(()) if name in self._scalar_inputs else array
            for name, array in zip(names, fed, strict=True)
        ]
        try:
            results = call(*fed)
        except self._callers_errors as error:
            # The tensors do not fit the graph: the caller's doing.
            text = f"model '{self._spec.name}' refused the request: {_cause(error)}"
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND) from error
        except Exception as error:
            raise BackendError(
                f"model '{self._spec.name}' failed to execute: {_cause(error)}"
            ) from error
        return {
            name: self._as_output(name, result)
            for name, result in zip(output_names, results, strict=True)
        }

    def _call(
        self, given: tuple[str, ...], wanted: tuple[str, ...]
    ) -> tuple[Sequence[str], Callable[..., Any]]:
        key = (*wanted, "", *given)
        if key not in self._calls:
            loaded = self._loaded
            call = loaded.session.make_callable(
                [loaded.outputs[name] for name in wanted],
                feed_list=[loaded.inputs[name] for name in given],
            )
            self._calls[key] = (given, call)
        return self._calls[key]

    def _as_output(self, name: str, result: Any) -> Array:
        datatype = self._outputs[name].datatype
        array: Array = np.asarray(result, dtype=datatype.dtype)
        return array.reshape(1) if name in self._scalar_outputs else array


def _scalars(tensors: Mapping[str, Any], wanted: Mapping[str, TensorSpec]) -> frozenset[str]:
    """Scalars of the graph, which are one element for callers."""
    return frozenset(
        name
        for name, tensor in tensors.items()
        if name in wanted and tensor.shape.rank == 0 and wanted[name].dims == (1,)
    )


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import: errors only
    tensorflow = require(
        "tensorflow", backend="tensorflow", install="pip install 'conch[tensorflow]'"
    )
    tensorflow.get_logger().setLevel("ERROR")  # advice about its own older functions
    return tensorflow


def _path(context: ModelContext) -> Path:
    default = _FILES.get(context.config.platform, TensorFlowBackend.default_model_filename)
    is_folder = context.config.platform != _GRAPHDEF
    path = model_path(context, default, may_be_directory=is_folder)
    if is_folder and not path.is_dir():
        raise ModelLoadError(
            f"{context.version}/{path.name} is no folder: a SavedModel is one, with saved_model.pb "
            'in it; for a frozen graph write platform: "tensorflow_graphdef"'
        )
    return path


def _saved_signature(path: Path, wanted: str) -> ModelSignature:
    """Raises: ModelLoadError naming the file."""
    try:
        found = read_savedmodel_signature(path, wanted)
    except InvalidArgumentError as error:
        cause = error.message.replace(str(path.parent) + "/", "")
        raise ModelLoadError(f"tensorflow cannot load {path.name}: {cause}") from error
    return ModelSignature(
        *(
            tuple(
                ModelTensor(item.name, item.datatype, item.shape, item.is_rank_known)
                for item in side
            )
            for side in (found.inputs, found.outputs)
        )
    )


def _device(kind: InstanceKind, number: int) -> int:
    if kind is InstanceKind.MODEL:
        return _NO_PLACE
    return number if kind is InstanceKind.GPU else _NO_GPU


def _load(context: ModelContext, path: Path, settings: TensorFlowSettings, device: int) -> _Loaded:
    """A new session with the model in it, on GPU `device`, on the CPU, or where the graph says."""
    tensorflow = _tensorflow()
    _require_gpu(tensorflow, context.spec, device)
    graph = tensorflow.Graph()
    session = tensorflow.compat.v1.Session(graph=graph, config=_session_config(settings, device))
    place = None if device == _NO_PLACE else f"/device:GPU:{device}" if device >= 0 else "/CPU:0"
    try:
        with graph.as_default(), tensorflow.device(place):
            if context.config.platform == _GRAPHDEF:
                inputs, outputs = _import_graph(tensorflow, context.spec, path)
            else:
                inputs, outputs = _import_saved_model(tensorflow, session, path, settings)
        for name in settings.init_operations:
            session.run(graph.get_operation_by_name(name))
    except Exception as error:
        session.close()
        if isinstance(error, ServingError):
            raise
        cause = _cause(error).replace(str(path.parent) + "/", "")
        raise ModelLoadError(f"tensorflow cannot load {path.name}: {cause}") from error
    return _Loaded(session, inputs, outputs)


def _session_config(settings: TensorFlowSettings, device: int) -> Any:
    v1 = _tensorflow().compat.v1
    fraction = settings.gpu_memory_fraction
    options = v1.GPUOptions(allow_growth=not fraction, per_process_gpu_memory_fraction=fraction)
    return v1.ConfigProto(
        intra_op_parallelism_threads=settings.intra_op_threads,
        inter_op_parallelism_threads=settings.inter_op_threads,
        use_per_session_threads=settings.has_own_threads,
        allow_soft_placement=settings.allows_soft_placement,
        device_count={"GPU": 0} if device == _NO_GPU else {},
        gpu_options=options,
    )


def _require_gpu(tensorflow: Any, spec: ModelSpec, device: int) -> None:
    found = tensorflow.config.list_physical_devices("GPU") if device >= 0 else []
    if device >= 0 and device >= len(found):
        raise ModelLoadError(
            f"model '{spec.name}' asks for GPU {device}, and tensorflow finds {len(found)} GPUs: "
            "pip install 'tensorflow[and-cuda]' in place of tensorflow-cpu, or use KIND_CPU"
        )


def _import_saved_model(
    tensorflow: Any, session: Any, path: Path, settings: TensorFlowSettings
) -> tuple[dict[str, Any], dict[str, Any]]:
    loader = tensorflow.compat.v1.saved_model
    signatures = loader.load(session, [settings.tag], str(path)).signature_def
    if settings.signature not in signatures:
        raise InvalidArgumentError(
            f"{path.name} has no signature '{settings.signature}' under the tag '{settings.tag}'; "
            f"its signatures: {', '.join(sorted(signatures)) or 'none'}"
        )
    chosen = signatures[settings.signature]
    graph = session.graph
    return (
        {name: graph.get_tensor_by_name(item.name) for name, item in chosen.inputs.items()},
        {name: graph.get_tensor_by_name(item.name) for name, item in chosen.outputs.items()},
    )


def _import_graph(
    tensorflow: Any, spec: ModelSpec, path: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    definition = tensorflow.compat.v1.GraphDef()
    definition.ParseFromString(path.read_bytes())
    tensorflow.import_graph_def(definition, name="")
    graph = tensorflow.compat.v1.get_default_graph()
    inputs = {name: _tensor_named(graph, name, path) for name in spec.backend_inputs}
    for item in spec.batch_inputs:
        inputs |= {name: _tensor_named(graph, name, path) for name in item.names}
    outputs = {name: _tensor_named(graph, name, path) for name in spec.backend_outputs}
    check(
        spec,
        ModelSignature(
            tuple(_described(name, tensor) for name, tensor in inputs.items()),
            tuple(_described(name, tensor) for name, tensor in outputs.items()),
        ),
    )
    return inputs, outputs


def _tensor_named(graph: Any, name: str, path: Path) -> Any:
    """Of a node, or of one of its outputs: x, x:1."""
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError) as error:
        raise InvalidArgumentError(
            f"{path.name} has no node '{name}'; its placeholders are "
            f"{_listed(item for item in graph.get_operations() if item.type == 'Placeholder')}, "
            f"its ends {_listed(filter(_is_end, graph.get_operations()))}"
        ) from error


def _is_end(operation: Any) -> bool:
    """Whether no other operation of the graph takes its outputs."""
    return bool(operation.outputs) and not any(item.consumers() for item in operation.outputs)


def _listed(operations: Iterable[Any]) -> str:
    names = [item.name for item in operations]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "none") + more


def _described(name: str, tensor: Any) -> ModelTensor:
    rank = tensor.shape.rank
    shape = () if rank is None else tuple(-1 if size is None else size for size in tensor.shape)
    return ModelTensor(name, _datatype(tensor.dtype), shape, rank is not None, tensor.dtype.name)


def _datatype(kind: Any) -> DataType | None:
    if kind.name == "string":
        return BY_NAME["BYTES"]
    if kind.name == "bfloat16":
        return BY_DTYPE[np.dtype(ml_dtypes.bfloat16)]
    try:
        return BY_DTYPE.get(np.dtype(kind.as_numpy_dtype))
    except TypeError:
        return None


def _cause(error: Exception) -> str:
    """The first line of the library's text, without places in the graph."""
    text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
    lines = [line.strip() for line in _NODE.sub("", str(text)).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
