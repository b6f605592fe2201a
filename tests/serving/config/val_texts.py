"""Parts of configs, and the form of a row: a config that breaks exactly one load-time rule.

The mark § stands before the token where the finding must point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from serving.config.findings import Severity
from serving.config.tokens import Lines

IO = (
    'input { name: "A" data_type: TYPE_FP32 dims: [4] }\n'
    'output { name: "B" data_type: TYPE_FP32 dims: [4] }\n'
)
BASE = f'backend: "onnxruntime"\n{IO}'
BATCHED = f"{BASE}max_batch_size: 4\n"
STEP = (
    'step {\n  model_name: "part"\n  input_map { key: "x" value: "A" }\n'
    '  output_map { key: "y" value: "B" }\n}\n'
)
INT = "int32_false_true: [0, 1]"
DELAY = "timeout_action: DELAY default_timeout_microseconds: 5"
START = 'sequence_batching {\n  control_input { name: "S"\n    '


class Row(NamedTuple):
    text: str
    field: str
    words: tuple[str, ...]
    options: dict[str, Any] = {}
    severity: Severity = Severity.ERROR


def at_mark(text: str) -> tuple[tuple[int, int], str]:
    """Line and column of the mark, (0, 0) where there is none, and the text without it."""
    offset = text.find("§")
    if offset < 0:
        return (0, 0), text
    return Lines(text).place(offset), text.replace("§", "")


def ensemble(steps: str = STEP, extra: str = "") -> str:
    return f'platform: "ensemble"\n{IO}ensemble_scheduling {{\n{steps}}}\n{extra}'


def sequence(body: str) -> str:
    return f"{BATCHED}sequence_batching {{\n{body}\n}}\n"


def control(body: str, name: str = "S") -> str:
    return f'control_input {{\n  name: "{name}"\n  {body}\n}}\n'


def dynamic(body: str) -> str:
    return f"{BATCHED}dynamic_batching {{\n  {body}\n}}\n"


def tensor(body: str, extra: str = "") -> str:
    output = 'output { name: "B" data_type: TYPE_FP32 dims: [4] }'
    return f'backend: "onnxruntime"\n{extra}input {{ {body} }}\n{output}\n'


def group(body: str) -> str:
    return f"{BASE}instance_group [\n  {{ {body} }}\n]\n"


def warmup(body: str) -> str:
    return f'{BASE}model_warmup {{\n  name: "w" batch_size: 1\n  inputs {{ {body} }}\n}}\n'


RAW: dict[str, Any] = {"completed": False}
X = 'name: "x" data_type: TYPE_FP32'
ID = "kind: CONTROL_SEQUENCE_CORRID"
DYNAMIC = "dynamic_batching."
CONTROL = "sequence_batching.control_input[0].control[0]"
STATE = "sequence_batching.state[0].initial_state[0]"
S = 'input_name: "s" output_name: "t" data_type: TYPE_FP32'
F = "data_type: TYPE_FP32"
