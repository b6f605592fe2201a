"""The TensorRT backend: one engine for each device of a model version, shared by its instances.

What can be known without a device is checked first: settings, the engine file's header, which
runtime it needs and whether that is installed. Then the driver is asked, and only then anything is
deserialized. Load threads enter the backend and the model; an instance belongs to its thread.
Behaviour after spec TRT-01..05, AUT-04.
"""

from __future__ import annotations

import threading
from pathlib import Path

from serving.backends.attributes import BackendAttributes, PreferredGroup
from serving.backends.base import Backend, LoadedModel, ModelContext, ModelInstance, Placement
from serving.backends.model_place import model_path, refuse_decoupled
from serving.backends.tensorrt import cuda_runtime, library, signature
from serving.backends.tensorrt.engine import DeviceEngine
from serving.backends.tensorrt.instance import TensorRTInstance
from serving.backends.tensorrt.library import Library
from serving.backends.tensorrt.options import (
    EngineSettings,
    dla_core_of,
    group_of,
    profile_numbers,
    read_settings,
    refuse_non_linear,
)
from serving.config import plan_header
from serving.config.decode import InstanceGroup, InstanceKind
from serving.config.plan_header import PlanHeader
from serving.errors import InvalidArgumentError, UnavailableError


class TensorRTBackend(Backend):
    name = "tensorrt"
    attributes = BackendAttributes(
        preferred_instance_groups=(PreferredGroup(InstanceKind.GPU),),
        parallel_instance_loading=True,
    )
    default_model_filename = "model.plan"

    def auto_complete(self, context: ModelContext) -> None:
        """AUT-04: from the engine, which takes a device to read."""
        if context.config.input and context.config.output:
            return
        model = _opened(context)
        try:
            gpus = [gpu for group in context.spec.instance_groups for gpu in group.gpus]
            engine = model.engine(gpus[0] if gpus else 0, None)
            signature.complete(context.config, engine.signature)
        finally:
            model.unload()

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        refuse_non_linear(context)
        model = _opened(context)
        try:
            _check_kinds(context)
            for group in context.spec.instance_groups:
                for gpu in group.gpus or (0,):
                    model.check(group, gpu)
        except BaseException:
            model.unload()
            raise
        return model


class TensorRTModel(LoadedModel):
    def __init__(
        self,
        context: ModelContext,
        path: Path,
        settings: EngineSettings,
        runtime: Library,
        header: PlanHeader,
    ) -> None:
        self._context = context
        self._path = path
        self._settings = settings
        self._library = runtime
        self._header = header
        self._engines: dict[tuple[int, int | None], DeviceEngine] = {}
        self._lock = threading.Lock()

    def engine(self, number: int, dla: int | None) -> DeviceEngine:
        """Made on first use. Raises: UnavailableError, ModelLoadError."""
        with self._lock:
            engine = self._engines.get((number, dla))
            if engine is None:
                engine = self._engines[number, dla] = self._open(number, dla)
            return engine

    def _open(self, number: int, dla: int | None) -> DeviceEngine:
        device = cuda_runtime.driver().device(number)
        file = f"{self._path.parent.name}/{self._path.name}"
        plan_header.check_capability(self._header, device.capability, device.name, file)
        return DeviceEngine(self._library, self._path, device, self._settings, dla)

    def check(self, group: InstanceGroup, gpu: int) -> None:
        """Raises: ServingError where config, group and engine do not fit together."""
        placement = Placement(group.name, group.kind, gpu)
        engine = self.engine(self._context.cuda_number(placement), dla_core_of(group))
        signature.check(self._context.spec, engine.signature)
        profile_numbers(group, len(engine.signature.profiles))

    def create_instance(self, placement: Placement) -> ModelInstance:
        group = group_of(self._context.spec, placement)
        engine = self.engine(self._context.cuda_number(placement), dla_core_of(group))
        numbers = profile_numbers(group, len(engine.signature.profiles))
        return TensorRTInstance(self._context, engine, self._settings, numbers)

    def unload(self) -> None:
        with self._lock:
            for engine in self._engines.values():
                engine.close()
            self._engines.clear()


def _opened(context: ModelContext) -> TensorRTModel:
    """All checks that take no device, then the driver. Raises: ServingError."""
    settings = read_settings(context)
    path = model_path(context, TensorRTBackend.default_model_filename)
    file = f"{path.parent.name}/{path.name}"
    header = plan_header.read_header(path)
    plan_header.check_library(header, settings.library, settings.library_asked_by, file)
    runtime = library.library(header.library)
    plan_header.check_version(
        header, runtime.version, file, is_version_compatible=settings.is_version_compatible
    )
    try:
        cuda_runtime.driver()
    except UnavailableError as error:
        raise UnavailableError(
            f"{error.message}, or serve the model's ONNX file with the onnxruntime backend"
        ) from error
    return TensorRTModel(context, path, settings, runtime, header)


def _check_kinds(context: ModelContext) -> None:
    for group in context.spec.instance_groups:
        if group.kind is not InstanceKind.GPU:
            raise InvalidArgumentError(
                f"instance group '{group.name}' is {group.kind.value}: a TensorRT engine runs on "
                "GPUs only; write kind: KIND_GPU"
            )
