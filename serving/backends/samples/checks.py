"""What the sample backends ask of a config. Pure; load threads."""

from __future__ import annotations

from collections.abc import Sequence

from serving.config.decode import ModelSpec
from serving.errors import InvalidArgumentError


def check_io(spec: ModelSpec, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raises: InvalidArgumentError where the config has other inputs, or lacks an output."""
    for side, wanted, found in (("input", inputs, spec.inputs), ("output", outputs, spec.outputs)):
        if sorted(wanted) != sorted(found):
            raise InvalidArgumentError(
                f"model '{spec.name}': the {spec.backend} backend needs the {side}s "
                f"{', '.join(wanted)}, the config has {', '.join(found) or 'none'}"
            )
