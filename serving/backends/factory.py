"""Answers to one request, for backends that give several, or give them from threads of their own.

What Triton's response factory is (TRITONBACKEND_ResponseFactory): made while the request executes,
kept for as long as answers are to come. Any thread may enter; answers leave in the order of the
calls. Source: spec BE-007, BE-008.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from serving.backends.results import check_type
from serving.config.decode import ModelSpec
from serving.errors import ServingError
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor, ParameterValue


class ResponseFactory:
    def __init__(self, spec: ModelSpec, version: int, request: InferenceRequest) -> None:
        self._spec = spec
        self._version = version
        self._request = request
        self._lock = threading.Lock()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<ResponseFactory {self._request.id!r} {'over' if self._is_over else 'open'}>"

    @property
    def is_cancelled(self) -> bool:
        """Nobody waits for more answers: end it soon."""
        return self._request.is_cancelled

    def release_inputs(self) -> None:
        """The inputs are read, or copied: their memory may go before the last answer."""
        self._request.inputs.clear()

    def send(
        self,
        outputs: Mapping[str, NDArray[np.generic]],
        *,
        parameters: Mapping[str, ParameterValue] | None = None,
        is_final: bool = False,
    ) -> None:
        """One answer. `outputs` the caller did not ask for are left out, but for states.

        Raises: RuntimeError after the final one, BackendError for an output that the config does
        not have, or has with another type.
        """
        declared = self._spec.backend_outputs
        for name, array in outputs.items():
            check_type(self._spec.name, declared, name, array)
        wanted = self._request.output_names or list(outputs)
        wanted += [state.output_name for state in self._spec.states]
        tensors = [
            OutputTensor(name, declared[name].datatype, array.shape, array)
            for name, array in outputs.items()
            if name in wanted
        ]
        request = self._request
        self._respond(
            InferenceResponse(
                request.model_name,
                self._version,
                request.id,
                tensors,
                dict(parameters or {}),
                is_final=is_final,
            )
        )

    def send_error(self, error: ServingError) -> None:
        """The final answer. Raises: RuntimeError after a final one."""
        self._respond(self._request.error_response(error))

    def finish(self) -> None:
        """No more answers: the final flag alone. Harmless when that has been said."""
        if not self._is_over:
            request = self._request
            self._respond(
                InferenceResponse(request.model_name, self._version, request.id, is_null=True)
            )

    def _respond(self, response: InferenceResponse) -> None:
        with self._lock:
            if self._is_over:
                raise RuntimeError(f"request {self._request.id!r} has had its final response")
            self._is_over = response.is_final
            self._request.respond(response)
