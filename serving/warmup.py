"""Warm-up: runs the samples of `model_warmup` on every instance before a model turns READY.

Building samples reads files and belongs to a load thread; running them belongs to the loop.
Behaviour after spec SCH-130..134.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.backends.base import ModelContext
from serving.config.decode import WarmupInput, WarmupSample
from serving.errors import InvalidArgumentError, ServingError, UnavailableError
from serving.instance.base import Batch, InstanceHost
from serving.request import InferenceRequest, InputTensor
from serving.request_checks import RequestChecks
from serving.response import InferenceResponse
from serving.scheduling.sequence.controls import ControlInputs
from serving.scheduling.sequence.initial_state import read_initial_states
from serving.scheduling.sequence.state import ImplicitState
from serving.tensor_files import TensorFile

PHASE = "warming up"
"""How the index tells of it."""
_DIRECTORY = "warmup"
_SEED = 20


@dataclass(frozen=True, slots=True)
class PreparedSample:
    sample: WarmupSample
    arrays: dict[str, NDArray[np.generic]]
    """One row of each input, shaped like its dims."""
    added: Mapping[str, InputTensor] = field(default_factory=dict)
    """What the sequence batcher would add to the first request of a sequence: controls, states."""


def prepare(context: ModelContext) -> list[PreparedSample]:
    """Build the data of every sample. Raises ServingError naming sample, input and cause."""
    prepared = []
    added = _added_by_sequence_batcher(context) if context.spec.warmup else {}
    for sample in context.spec.warmup:
        if sample.batch_size == 0:
            continue
        arrays = {}
        for item in sample.inputs:
            try:
                arrays[item.name] = _data(item, context.model_directory)
            except (ServingError, OSError, ValueError) as error:
                raise _failure(sample, f"input '{item.name}': {error}") from error
        prepared.append(PreparedSample(sample, arrays, added))
    return prepared


def _added_by_sequence_batcher(context: ModelContext) -> dict[str, InputTensor]:
    spec = context.spec
    request = InferenceRequest(spec.name, sequence_start=True, correlation_id=1)
    controls = ControlInputs(spec)
    if controls.takes_text_ids:
        request.correlation_id = "1"
    controls.apply(request)
    ImplicitState(spec, read_initial_states(context)).start().feed(request)
    return request.inputs


async def run(
    host: InstanceHost,
    samples: Sequence[PreparedSample],
    context: ModelContext,
    checks: RequestChecks,
) -> None:
    """Run all samples in order on one instance. Raises ServingError with the sample and cause."""
    for prepared in samples:
        for _ in range(prepared.sample.count):
            requests = _requests(prepared, context)
            for request in requests:
                try:
                    checks.check(request)
                except ServingError as error:
                    raise _failure(prepared.sample, error.message) from error
                _complete_sequence(request, prepared, context)
            for response in await _execute(host, requests):
                if response.error is not None:
                    raise _failure(prepared.sample, response.error.message) from response.error


async def _execute(
    host: InstanceHost, requests: Sequence[InferenceRequest]
) -> list[InferenceResponse]:
    """Each request's final response, or its first error."""
    loop = asyncio.get_running_loop()
    answers: dict[InferenceRequest, asyncio.Future[InferenceResponse]] = {
        request: loop.create_future() for request in requests
    }
    done: asyncio.Future[None] = loop.create_future()

    def deliver(request: InferenceRequest, response: InferenceResponse) -> None:
        if (response.is_final or response.error) and not answers[request].done():
            answers[request].set_result(response)

    def executed(_: Batch) -> None:
        if not done.done():  # the warm-up has been given up
            done.set_result(None)

    for request in requests:
        request.deliver = deliver
    host.execute(Batch(list(requests), len(requests), "warm-up"), executed)
    await done
    return await asyncio.gather(*answers.values())


def _requests(prepared: PreparedSample, context: ModelContext) -> list[InferenceRequest]:
    """A batch of the sample: as in Triton, that many requests of one row each."""
    sample, spec = prepared.sample, context.spec
    limit = max(1, spec.max_batch_size)
    if sample.batch_size > limit:
        raise _failure(
            sample,
            f"batch_size is {sample.batch_size}, but the model has max_batch_size "
            f"{spec.max_batch_size}: set it to {limit} at most",
        )
    requests = []
    for number in range(sample.batch_size):
        name = f"warm-up {sample.name} {number}"
        request = InferenceRequest(spec.name, context.version, id=name)
        for item in sample.inputs:
            if item.name not in prepared.added:
                request.inputs[item.name] = _tensor(item, prepared, context)
        requests.append(request)
    return requests


def _complete_sequence(
    request: InferenceRequest, prepared: PreparedSample, context: ModelContext
) -> None:
    """Controls and states: as the sample lists them, or as at the start of a sequence (SCH-133)."""
    request.inputs.update(prepared.added)
    for item in prepared.sample.inputs:
        if item.name in prepared.added:
            request.inputs[item.name] = _tensor(item, prepared, context)


def _tensor(item: WarmupInput, prepared: PreparedSample, context: ModelContext) -> InputTensor:
    array = prepared.arrays[item.name]
    if context.spec.has_batch_axis:
        array = array[np.newaxis]
    return InputTensor(item.name, item.datatype, array.shape, array)


def _data(item: WarmupInput, model_directory: Path) -> NDArray[np.generic]:
    if any(dim < 0 for dim in item.dims):
        raise InvalidArgumentError(
            f"dims {list(item.dims)} must all be given: a sample has one shape"
        )
    if item.input_data_file:
        return _file_data(item, model_directory / _DIRECTORY)
    if item.datatype.is_bytes:
        # Random text is no use to any model: as in Triton, empty strings stand in.
        return np.full(item.dims, b"", dtype=np.object_)
    if item.random_data:
        return _random_data(item)
    if item.zero_data:
        return np.zeros(item.dims, dtype=item.datatype.dtype)
    raise InvalidArgumentError("give one of zero_data, random_data or input_data_file")


def _random_data(item: WarmupInput) -> NDArray[np.generic]:
    generator = np.random.default_rng(_SEED)
    dtype = item.datatype.dtype
    if dtype.kind == "b":
        return generator.integers(0, 2, item.dims).astype(dtype)
    if dtype.kind in "iu":
        # Small values fit every integer type, and the tables that such inputs often index.
        return generator.integers(0, 128, item.dims).astype(dtype)
    return generator.random(item.dims).astype(dtype)


def _file_data(item: WarmupInput, directory: Path) -> NDArray[np.generic]:
    file = TensorFile(directory, "input_data_file", item.input_data_file)
    return file.read(item.name, item.datatype, item.dims)


def overdue(timeout_s: float) -> UnavailableError:
    return UnavailableError(
        f"the samples of model_warmup did not end within {timeout_s:g} s: use smaller ones, or "
        "raise --model-warmup-timeout-secs"
    )


def _failure(sample: WarmupSample, cause: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"failed to run warmup sample '{sample.name}': {cause}")
