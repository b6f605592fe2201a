"""A bound on how many tensors a request may list, for HTTP and gRPC, before any is decoded.

Checking a request is the model's business; this only spares the loop the seconds that a list far
longer than any honest mistake would take. Pure; any thread.
"""

from __future__ import annotations

from serving.config.decode import ModelSpec
from serving.errors import InvalidArgumentError

_SLACK = 64
"""Near the right number the model's own checks say more: which name is twice, or unknown."""


def check_tensor_counts(inputs: int, outputs: int, spec: ModelSpec) -> None:
    """Raises: InvalidArgumentError."""
    for what, got, has in (
        ("inputs", inputs, len(spec.inputs)),
        ("outputs", outputs, len(spec.outputs)),
    ):
        if got > has + _SLACK:
            raise InvalidArgumentError(
                f"expected at most {has} {what} but got {got} {what} for model '{spec.name}'"
            )
