"""`repeat` and `square`: samples of backends that answer a request any number of times.

`repeat` sends each element of IN back as OUT, with its place as IDX, DELAY milliseconds after the
one before; WAIT milliseconds pass before the instance takes the next request. `square` answers n
with n responses, each of value n. Each request has a thread that answers it; instances only start
them. Source: spec SMP-01, Triton's repeat_backend and square_backend.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Sequence

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
)
from serving.backends.factory import ResponseFactory
from serving.backends.samples.checks import check_io
from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest

_LOOK_UP_S = 0.05
"""How long a delay goes on after a request was cancelled."""
_END_S = 5.0
"""How long a closing instance waits for its threads."""


class _StreamBackend(Backend):
    attributes = BackendAttributes(parallel_instance_loading=True)
    inputs: Sequence[str]
    outputs: Sequence[str]
    counts: Sequence[str]
    """Inputs that say how often, or how long."""

    def load(self, context: ModelContext) -> LoadedModel:
        check_io(context.spec, self.inputs, self.outputs)
        if not context.spec.is_decoupled:
            raise InvalidArgumentError(
                f"model '{context.spec.name}': the {self.name} backend answers a request any "
                "number of times: set model_transaction_policy { decoupled: true }"
            )
        for tensor in (context.spec.inputs[name] for name in self.counts):
            if tensor.datatype.dtype.kind not in "iu":
                raise InvalidArgumentError(
                    f"model '{context.spec.name}': {tensor.name} of the {self.name} backend is a "
                    f"whole number, the config makes it {tensor.datatype.config_name}: write an "
                    "integer data_type such as TYPE_INT32"
                )
        return _StreamModel(self, context)

    @abstractmethod
    def answer(
        self,
        inputs: dict[str, NDArray[np.generic]],
        factory: ResponseFactory,
        lead: tuple[int, ...],
        closing: threading.Event,
    ) -> None:
        """In the request's own thread. `lead`: the shape before the dims of an output."""

    @abstractmethod
    def fault_of(self, inputs: dict[str, NDArray[np.generic]]) -> str:
        """What keeps the request from being answered; empty for nothing."""

    def wait_ms(self, inputs: dict[str, NDArray[np.generic]]) -> int:
        """How long the instance stays busy with the request."""
        return 0


class RepeatBackend(_StreamBackend):
    name = "repeat"
    inputs = ("IN", "DELAY", "WAIT")
    outputs = ("OUT", "IDX")
    counts = ("DELAY", "WAIT")

    def fault_of(self, inputs: dict[str, NDArray[np.generic]]) -> str:
        values, delays = inputs["IN"].size, inputs["DELAY"].size
        if values != delays:
            return f"IN has {values} elements and DELAY has {delays}: send as many of each"
        return "" if inputs["WAIT"].size else "WAIT is empty: send one number of milliseconds"

    def answer(
        self,
        inputs: dict[str, NDArray[np.generic]],
        factory: ResponseFactory,
        lead: tuple[int, ...],
        closing: threading.Event,
    ) -> None:
        values, delays = inputs["IN"].ravel(), inputs["DELAY"].ravel()
        for place, (value, delay_ms) in enumerate(zip(values, delays, strict=True)):
            if not _pause(int(delay_ms) / 1000, factory, closing):
                return
            index = np.full((*lead, 1), place, np.uint32)
            factory.send({"OUT": np.full((*lead, 1), value, values.dtype), "IDX": index})

    def wait_ms(self, inputs: dict[str, NDArray[np.generic]]) -> int:
        return int(inputs["WAIT"].ravel()[0])


def _pause(delay_s: float, factory: ResponseFactory, closing: threading.Event) -> bool:
    """False: nobody waits for what comes after it."""
    end = time.monotonic() + delay_s
    while (left := end - time.monotonic()) > 0 and not factory.is_cancelled:
        if closing.wait(min(left, _LOOK_UP_S)):
            return False
    return not factory.is_cancelled


class SquareBackend(_StreamBackend):
    name = "square"
    inputs = ("IN",)
    outputs = ("OUT",)
    counts = ("IN",)

    def fault_of(self, inputs: dict[str, NDArray[np.generic]]) -> str:
        return "" if inputs["IN"].size else "IN is empty: send one number"

    def answer(
        self,
        inputs: dict[str, NDArray[np.generic]],
        factory: ResponseFactory,
        lead: tuple[int, ...],
        closing: threading.Event,
    ) -> None:
        values = inputs["IN"]
        for _ in range(int(values.ravel()[0])):
            if closing.is_set() or factory.is_cancelled:
                return
            factory.send({"OUT": values})


class _StreamModel(LoadedModel):
    def __init__(self, backend: _StreamBackend, context: ModelContext) -> None:
        self._backend = backend
        self._context = context

    def create_instance(self, placement: Placement) -> ModelInstance:
        return _StreamInstance(self._backend, self._context)


class _StreamInstance(ModelInstance):
    def __init__(self, backend: _StreamBackend, context: ModelContext) -> None:
        self._backend = backend
        self._context = context
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        wait_ms = 0
        for request in requests:
            # Copies, so that the request's memory can go while the answers are still to come.
            inputs = {name: tensor.array.copy() for name, tensor in request.inputs.items()}
            factory = ResponseFactory(self._context.spec, self._context.version, request)
            factory.release_inputs()
            fault = self._backend.fault_of(inputs)
            if fault:
                name = self._context.spec.name
                factory.send_error(InvalidArgumentError(f"model '{name}': {fault}"))
                continue
            wait_ms = max(wait_ms, self._backend.wait_ms(inputs))
            thread = threading.Thread(
                target=self._answer, args=(inputs, factory), name=self._context.spec.name
            )
            thread.daemon = True
            self._threads.append(thread)
            thread.start()
        self._closing.wait(wait_ms / 1000)

    def _answer(self, inputs: dict[str, NDArray[np.generic]], factory: ResponseFactory) -> None:
        lead = (1,) if self._context.spec.has_batch_axis else ()
        self._backend.answer(inputs, factory, lead, self._closing)
        factory.finish()

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(_END_S)
