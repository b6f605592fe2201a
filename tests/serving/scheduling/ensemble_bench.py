"""An ensemble over parts that answer when the test says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.datatypes import BY_DTYPE
from serving.errors import NotFoundError, ServingError
from serving.instance.base import Batch
from serving.leases import Leases
from serving.request import InferenceRequest, RequestTimes
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.ensemble import EnsembleScheduler
from tests.fakes import FakeClock
from tests.serving.loading import config_of, request_of, spec_of

Arrays = Mapping[str, np.ndarray]


def tensors(kind: str, *names: str, dims: str = "[-1]", more: str = "") -> str:
    return "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: {dims} {more} }}\n' for name in names
    )


def step(
    model: str, inputs: Mapping[str, str], outputs: Mapping[str, str], version: int = -1
) -> str:
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f'step {{ model_name: "{model}" model_version: {version} {" ".join(maps)} }}\n'


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


class Part:
    """A model with inputs X, Y (optional) and outputs P, Q; or an ensemble itself."""

    def __init__(
        self,
        name: str,
        clock: FakeClock,
        *,
        max_batch_size: int = 0,
        is_decoupled: bool = False,
        version: int = 1,
    ) -> None:
        text = (
            f'name: "{name}" backend: "python" max_batch_size: {max_batch_size}\n'
            + tensors("input", "X")
            + tensors("input", "Y", more="optional: true")
            + tensors("output", "P", "Q")
            + f"model_transaction_policy {{ decoupled: {str(is_decoupled).lower()} }}"
        )
        self.name = name
        self.version = version
        self.namespace = ""
        self.spec = spec_of(text)
        self.config = config_of(text)
        self.leases = Leases()
        self.ensemble: EnsembleScheduler | None = None
        self.unready_reason = ""
        self.labels: dict[str, list[str]] = {}
        self.requests: list[InferenceRequest] = []
        """Those without final answer."""
        self.count = 0
        self.refusal: ServingError | None = None
        self._clock = clock

    @property
    def is_ready(self) -> bool:
        return not self.unready_reason

    def labels_of(self, output_name: str) -> list[str]:
        return self.labels.get(output_name, [])

    def infer(self, request: InferenceRequest) -> None:
        self.count += 1
        if self.refusal is not None:
            request.on_response(request.error_response(self.refusal))
            return
        now_ns = self._clock.now_ns()
        request.times = RequestTimes(now_ns, now_ns)
        if self.ensemble is not None:
            request.deliver = _deliver
            self.ensemble.enqueue(request)
            return
        self.requests.append(request)

    def answer(
        self,
        outputs: Arrays | None = None,
        *,
        error: ServingError | None = None,
        is_final: bool = True,
        index: int = 0,
        **parameters: Any,
    ) -> None:
        """Answer a request; without outputs and error it is an empty final marker."""
        request = self.requests.pop(index) if is_final else self.requests[index]
        given = [
            OutputTensor(name, BY_DTYPE[item.dtype], item.shape, item)
            for name, item in (outputs or {}).items()
        ]
        response = InferenceResponse(
            self.name, self.version, request.id, given, parameters, error, is_final
        )
        response.is_null = outputs is None and error is None
        request.on_response(response)

    def run(self, queue_us: int, input_us: int, infer_us: int, output_us: int) -> None:
        """Stamp the first request as if it had taken that long."""
        times = self.requests[0].times
        times.compute_start_ns = times.queue_start_ns + queue_us * 1000
        times.compute_input_end_ns = times.compute_start_ns + input_us * 1000
        times.compute_output_start_ns = times.compute_input_end_ns + infer_us * 1000
        times.compute_end_ns = times.compute_output_start_ns + output_us * 1000

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Of the first request that waits for an answer."""
        return {name: item.array for name, item in self.requests[0].inputs.items()}


def _deliver(request: InferenceRequest, response: InferenceResponse) -> None:
    request.on_response(response)


class Sent:
    def __init__(self, request: InferenceRequest) -> None:
        self.request = request
        self.responses: list[InferenceResponse] = []

    @property
    def is_answered(self) -> bool:
        return bool(self.responses) and self.responses[-1].is_final

    @property
    def error(self) -> ServingError | None:
        return self.responses[-1].error

    @property
    def outputs(self) -> dict[str, list[float]]:
        return values(self.responses[-1])


def values(response: InferenceResponse) -> dict[str, list[float]]:
    return {item.name: item.array.tolist() for item in response.outputs}


class Bench:
    """Parts "a", "b", "c" and whatever a test adds to `parts`."""

    def __init__(
        self,
        *steps: str,
        inputs: str = tensors("input", "A"),
        outputs: str = tensors("output", "B"),
        extra: str = "",
    ) -> None:
        self.clock = FakeClock()
        self.parts = {name: Part(name, self.clock) for name in "abc"}
        self.holders: dict[str, Part] = {}
        """Who goes on with the sequence 7."""
        self.executed: list[Batch] = []
        text = (
            f'name: "e" platform: "ensemble" {extra}\n{inputs}{outputs}'
            f"ensemble_scheduling {{ {''.join(steps)} }}"
        )
        self.spec = spec_of(text)
        self.scheduler = EnsembleScheduler(
            self.spec, self, self.clock, on_executed=self.executed.append
        )

    def __getitem__(self, name: str) -> Part:
        return self.parts[name]

    def add(self, name: str, **options: Any) -> Part:
        part = self.parts[name] = Part(name, self.clock, **options)
        return part

    def model(self, name: str, version: int = -1, namespace: str = "") -> Part:
        part = self.parts.get(name)
        if part is None or version not in (-1, part.version):
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return part

    def sequence_holder(self, name: str, version: int, correlation_id: int | str) -> Part | None:
        return self.holders.get(name) if correlation_id == 7 else None

    def send(
        self, inputs: Arrays | None = None, *, outputs: tuple[str, ...] = (), **fields: Any
    ) -> Sent:
        given = {"A": array(1, 2)} if inputs is None else inputs
        sent = Sent(request_of(given, model="e", outputs=outputs, **fields))
        sent.request.times.request_start_ns = self.clock.now_ns()

        def deliver(request: InferenceRequest, response: InferenceResponse) -> None:
            if response.is_final:
                request.deliver = None
            sent.responses.append(response)

        sent.request.deliver = deliver
        self.scheduler.enqueue(sent.request)
        return sent
