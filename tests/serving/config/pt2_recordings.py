"""What real archives of AOTInductor (PyTorch 2.13) tell, without their machine code.

In tests/data/aoti: metadata, what `loader.get_call_spec()` gave, and the part of the source code
that is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.serving.config.model_bytes import compiled_program

SEED_INPUTS = (
    "ARGS[0]",
    "ARGS[1]",
    "ARGS[2][keyA]",
    "ARGS[2][key2]",
    "KWARGS[kwarg1]",
    "KWARGS[kw_arg2]",
)
SEED_OUTPUTS = (
    "RESULT[AAA]",
    "RESULT[ZZZ]",
    "RESULT[BBB][0]",
    "RESULT[BBB][1]",
    "RESULT[CCC][keyA]",
    "RESULT[CCC][key2]",
    "RESULT[DDD][KA]",
    "RESULT[DDD][KB]",
)
"""Names in the example of Triton's documentation."""
_DATA = Path(__file__).parents[2] / "data" / "aoti"


def recorded(name: str) -> Any:
    """`metadata` and `call_spec`."""
    return json.loads((_DATA / f"{name}.json").read_text())


def source(name: str) -> str:
    return (_DATA / f"{name}.cpp.txt").read_text()


def archive(name: str, **metadata: str) -> bytes:
    """The archive as it was, but for its machine code and the metadata given."""
    return compiled_program(name, source(name), recorded(name)["metadata"] | metadata)
