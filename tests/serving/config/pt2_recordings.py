"""What real archives of AOTInductor (PyTorch 2.13) tell, without their machine code.

In tests/data/aoti: metadata, what `loader.get_call_spec()` gave, and the part of the source code
that is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.serving.config.model_bytes import compiled_program

_DATA = Path(__file__).parents[2] / "data" / "aoti"


def recorded(name: str) -> Any:
    """`metadata` and `call_spec`."""
    return json.loads((_DATA / f"{name}.json").read_text())


def source(name: str) -> str:
    return (_DATA / f"{name}.cpp.txt").read_text()


def archive(name: str, **metadata: str) -> bytes:
    """The archive as it was, but for its machine code and the metadata given."""
    return compiled_program(name, source(name), recorded(name)["metadata"] | metadata)
