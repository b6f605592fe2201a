"""The DALI backend: preprocessing pipelines, run on the CPU or a GPU.

Each instance has a pipeline of its own, built for the model's largest batch. The rows of all
requests of a batch are samples of one run, and may differ in shape from request to request; a
request's own samples must come out alike. A sample that ends a run (a broken image) fails its own
request alone. Load threads enter the backend and the model; an instance belongs to its thread.
Source: spec DALI-01.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving import child_program
from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
)
from serving.backends.dali import serialize
from serving.backends.dali.pipeline import (
    Pipeline,
    Samples,
    Settings,
    cause_of,
    external_sources,
    release_unused_memory,
)
from serving.backends.model_place import model_path
from serving.config.decode import InstanceKind, ModelSpec
from serving.datatypes import BY_DTYPE
from serving.errors import (
    BackendError,
    ErrorCode,
    FailureReason,
    ModelLoadError,
    ServingError,
    UnsupportedError,
    error_from_code,
)
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor

Array = NDArray[np.generic]
_FILE = "model.dali"
_SOURCE = "dali.py"
_THREADS = "num_threads"
_RELEASE = "release_after_unload"
_SERIALIZE_S = 120.0
_NOT_CARRIED = ("BYTES", "BF16")


class DaliBackend(Backend):
    name = "dali"

    def load(self, context: ModelContext) -> LoadedModel:
        spec = context.spec
        if spec.is_decoupled:
            raise UnsupportedError(
                f"model '{spec.name}' is decoupled: DALI's Python interface does not tell when a "
                "video has ended, so pipelines that answer more than once cannot be served; remove "
                "model_transaction_policy"
            )
        if not spec.inputs or not spec.outputs:
            raise ModelLoadError(
                f"model '{spec.name}': a serialized pipeline does not tell names and shapes: list "
                "each external source under `input` by its name, and the outputs in order"
            )
        _check_tensors(spec)
        return _DaliModel(context, _serialized(context), _threads(spec))


class _DaliModel(LoadedModel):
    def __init__(self, context: ModelContext, serialized: bytes, threads: int) -> None:
        self._context = context
        self._serialized = serialized
        self._threads = threads

    def create_instance(self, placement: Placement) -> ModelInstance:
        is_gpu = placement.kind is InstanceKind.GPU
        device = self._context.cuda_number(placement) if is_gpu else None
        batch_size = max(1, self._context.spec.max_batch_size)
        settings = Settings(batch_size, self._threads, device)
        try:
            pipeline = Pipeline(self._serialized, settings)
        except ServingError:
            raise
        except Exception as error:
            raise ModelLoadError(
                f"model '{self._context.spec.name}': DALI cannot build its pipeline: "
                f"{cause_of(error)}"
            ) from error
        _check(self._context.spec, pipeline)
        _check_sources(self._context.spec, self._serialized)
        return _DaliInstance(self._context, pipeline)

    def unload(self) -> None:
        if self._context.spec.parameters.get(_RELEASE, "").lower() in ("true", "1", "yes"):
            release_unused_memory()


class _DaliInstance(ModelInstance):
    def __init__(self, context: ModelContext, pipeline: Pipeline) -> None:
        self._spec = context.spec
        self._version = context.version
        self._pipeline = pipeline
        self._outputs = list(context.spec.backend_outputs.values())

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        times.input_end_ns = time.monotonic_ns()
        try:
            outputs = self._run(requests)
        except Exception as error:
            if len(requests) == 1:
                self._refuse(requests[0], error)
                return
            # One of them may be at fault, and the others are not to suffer for it.
            for request in requests:
                self.execute([request], times)
            return
        times.output_start_ns = time.monotonic_ns()
        start = 0
        for request in requests:
            end = start + self._samples_of(request)
            self._answer(request, [samples[start:end] for samples in outputs])
            start = end

    def _run(self, requests: Sequence[InferenceRequest]) -> list[Samples]:
        given: dict[str, list[Array]] = {name: [] for name in self._spec.backend_inputs}
        for request in requests:
            for name, tensor in request.inputs.items():
                rows = tensor.array if self._spec.has_batch_axis else tensor.array[np.newaxis]
                given[name].append(np.ascontiguousarray(rows))
        return self._pipeline.run({name: _together(arrays) for name, arrays in given.items()})

    def _samples_of(self, request: InferenceRequest) -> int:
        return request.batch_size if self._spec.has_batch_axis else 1

    def _answer(self, request: InferenceRequest, outputs: list[Samples]) -> None:
        tensors = []
        wanted = request.output_names if request.requested_outputs else None
        for item, samples in zip(self._outputs, outputs, strict=True):
            if wanted is not None and item.name not in wanted:
                continue
            shapes = (
                set() if isinstance(samples, np.ndarray) else {sample.shape for sample in samples}
            )
            if len(shapes) > 1:
                text = (
                    f"output '{item.name}' of model '{self._spec.name}' has samples of different "
                    f"shapes in one request ({', '.join(map(str, sorted(shapes)))}): send each in "
                    "a request of its own, or make them alike in the pipeline"
                )
                request.respond_error(
                    error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)
                )
                return
            array = samples if isinstance(samples, np.ndarray) else np.stack(samples)
            if not self._spec.has_batch_axis:
                array = array[0]
            if BY_DTYPE.get(array.dtype) is not item.datatype:
                request.respond_error(
                    BackendError(
                        f"output '{item.name}' of model '{self._spec.name}' came out of the "
                        f"pipeline as {array.dtype}, the config says {item.datatype.config_name}"
                    )
                )
                return
            tensors.append(OutputTensor(item.name, item.datatype, array.shape, array))
        request.respond(InferenceResponse(self._spec.name, self._version, request.id, tensors))

    def _refuse(self, request: InferenceRequest, error: Exception) -> None:
        text = f"model '{self._spec.name}' could not process the request: {cause_of(error)}"
        request.respond_error(error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND))


def _together(arrays: list[Array]) -> Samples:
    """One array for each request -> the samples of all."""
    if len(arrays) == 1:
        return arrays[0]
    if len({array.shape[1:] for array in arrays}) == 1:
        return np.concatenate(arrays)
    return [row for array in arrays for row in array]


def _check_tensors(spec: ModelSpec) -> None:
    """Raises: UnsupportedError for what DALI does not carry."""
    for tensor in (*spec.backend_inputs.values(), *spec.backend_outputs.values()):
        if tensor.datatype.name in _NOT_CARRIED:
            raise UnsupportedError(
                f"'{tensor.name}' of model '{spec.name}' is {tensor.datatype.config_name}: DALI "
                "takes and gives numbers that NumPy knows; send texts and files as TYPE_UINT8"
            )
        if tensor.is_optional:
            raise UnsupportedError(
                f"input '{tensor.name}' of model '{spec.name}' is optional, and DALI runs no "
                "pipeline that is not fed wholly: remove `optional`"
            )


def _check_sources(spec: ModelSpec, serialized: bytes) -> None:
    """Raises: ModelLoadError for a source that would wait for ever."""
    for name in external_sources(serialized):
        if name not in spec.backend_inputs:
            raise ModelLoadError(
                f"model '{spec.name}': its pipeline has an external source '{name}', and the "
                f'config has no such input: list it under `input` as name: "{name}"'
            )


def _check(spec: ModelSpec, pipeline: Pipeline) -> None:
    """Raises: ModelLoadError where config and pipeline differ."""
    for name in spec.backend_inputs:
        if not pipeline.has_input(name):
            raise ModelLoadError(
                f"model '{spec.name}': its pipeline has no external source named '{name}': inputs "
                "of the config carry the names of the pipeline's external sources"
            )
    count = len(spec.backend_outputs)
    if pipeline.output_count != count:
        raise ModelLoadError(
            f"model '{spec.name}': its pipeline has {pipeline.output_count} output(s), the config "
            f"lists {count}; list them in the order in which the pipeline returns them"
        )


def _threads(spec: ModelSpec) -> int:
    text = spec.parameters.get(_THREADS, "1")
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1024):
        raise ModelLoadError(
            f"parameter '{_THREADS}' of model '{spec.name}' is '{text}': it must be a number of "
            "threads, 1 or more"
        )
    return int(text)


def _serialized(context: ModelContext) -> bytes:
    """Raises: ModelLoadError, UnavailableError where there is no file."""
    source = context.version_directory / _SOURCE
    if context.config.default_model_filename or not source.is_file():
        return model_path(context, _FILE).read_bytes()
    if (context.version_directory / _FILE).is_file():
        return model_path(context, _FILE).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / _FILE
        command = child_program.command(serialize.__name__, source, target)
        try:
            done = subprocess.run(  # noqa: S603 - what the owner of the model asks for
                command,
                env=child_program.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SERIALIZE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ModelLoadError(
                f"model '{context.spec.name}': {_SOURCE} took longer than {_SERIALIZE_S:g} s"
            ) from error
        if done.returncode or not target.is_file():
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            ended = f"the process {child_program.describe_exit(done.returncode)}"
            raise ModelLoadError(
                f"model '{context.spec.name}': {context.version}/{_SOURCE} could not be "
                f"serialized: {lines[-1] if lines and done.returncode > 0 else ended}"
            )
        return target.read_bytes()
