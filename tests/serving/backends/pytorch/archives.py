"""PT2 archives that tests serve, exported and compiled, and the configs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.serving.config.pt2_recordings import SEED_INPUTS, SEED_OUTPUTS

SEED_SHAPE = (1, 16)


class Example(nn.Module):
    """The example of Triton's documentation: 6 inputs, 8 outputs, nested."""

    def forward(
        self,
        hdata: Tensor,
        vdata: Tensor,
        options: dict[str, Tensor],
        *,
        kwarg1: Tensor,
        kw_arg2: Tensor,
    ) -> dict[str, Any]:
        return {
            "AAA": hdata + vdata,
            "ZZZ": hdata - vdata,
            "BBB": (hdata, vdata),
            "CCC": options,
            "DDD": {"KA": kwarg1, "KB": kw_arg2},
        }


class Net(nn.Module):
    """A small net of fixed weights, and its input doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12.0).reshape(3, 4) / 10)
            self.linear.bias.copy_(torch.tensor([0.5, -0.5, 1.0]))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(self.linear(x)), y * 2


class Joined(nn.Module):
    """Two tensors of one length."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Lookup(nn.Module):
    """Rows of a table, by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 64)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.table(numbers).mean(-1)


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Accumulate(nn.Module):
    """A sequence model: the controls and the state are tensors like any other."""

    def forward(self, x: Tensor, start: Tensor, corrid: Tensor, total: Tensor) -> Any:
        total = torch.where(start.bool(), torch.zeros_like(total), total) + x
        return total, total + corrid.to(torch.float32) * 1000


@dataclass(frozen=True)
class Archive:
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    batches: int = 0
    """So many arguments have a first dimension of any size."""
    is_joined: bool = False
    """They have the same size."""

    def exported(self) -> Any:
        size = torch.export.Dim("length") if self.is_joined else torch.export.Dim.DYNAMIC
        shapes = tuple({0: size} for _ in range(self.batches)) or None
        return torch.export.export(
            self.module.eval(), self.args, kwargs=self.kwargs, dynamic_shapes=shapes
        )

    def export(self, version_directory: Path) -> Path:
        version_directory.mkdir(parents=True, exist_ok=True)
        path = version_directory / "model.pt2"
        torch.export.save(self.exported(), str(path))
        return path


def _half() -> Tensor:
    return torch.zeros(SEED_SHAPE, dtype=torch.float16)


EXAMPLE = Archive(
    Example(),
    (_half(), _half(), {"keyA": _half(), "key2": _half()}),
    {"kwarg1": _half(), "kw_arg2": _half()},
)
NET = Archive(Net(), (torch.zeros(2, 4), torch.zeros(2, 2)), batches=2)
FIXED = Archive(Fixed(), (torch.zeros(2, 4),))
ACCUMULATE = Archive(
    Accumulate(),
    (
        torch.zeros(2, 1),
        torch.zeros(2, 1, dtype=torch.int32),
        torch.zeros(2, 1, dtype=torch.int64),
        torch.zeros(2, 1),
    ),
    batches=4,
)

JOINED = Archive(Joined(), (torch.zeros(3), torch.zeros(3)), batches=2, is_joined=True)

KINDS = {
    "example": EXAMPLE,
    "net": NET,
    "fixed": FIXED,
    "accumulate": ACCUMULATE,
    "joined": JOINED,
    "lookup": Archive(Lookup(), (torch.zeros(64, dtype=torch.int64),)),
}


def io(kind: str, names: Sequence[str], datatype: str = "FP32", dims: str = "4") -> str:
    return "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{dims}] }}\n' for name in names
    )


HEAD = 'name: "m" backend: "pytorch" platform: "torch_aoti"\n'
EXAMPLE_CONFIG = (
    HEAD + io("input", SEED_INPUTS, "FP16", "1, 16") + io("output", SEED_OUTPUTS, "FP16", "1, 16")
)
ORDINAL_CONFIG = (
    HEAD
    + io("input", [f"INPUT__{index}" for index in range(6)], "FP16", "1, 16")
    + io("output", [f"OUTPUT__{index}" for index in range(8)], "FP16", "1, 16")
)
NET_IO = (
    io("input", ["INPUT__0"])
    + io("input", ["INPUT__1"], dims="2")
    + io("output", ["OUTPUT__0"], dims="3")
    + io("output", ["OUTPUT__1"], dims="2")
)
NET_CONFIG = f"{HEAD}max_batch_size: 8\n{NET_IO}"
FIXED_CONFIG = HEAD + "max_batch_size: 8\n" + io("input", ["ARGS[0]"]) + io("output", ["RESULT"])
JOINED_CONFIG = (
    HEAD + io("input", ["ARGS[0]", "ARGS[1]"], dims="-1") + io("output", ["RESULT"], dims="-1")
)
LOOKUP_CONFIG = HEAD + io("input", ["ARGS[0]"], "INT64", "64") + io("output", ["RESULT"], dims="64")
ACCUMULATE_CONFIG = (
    HEAD
    + "max_batch_size: 4\n"
    + io("input", ["ARGS[0]"], dims="1")
    + io("output", ["RESULT[1]"], dims="1")
    + """
sequence_batching {
  control_input { name: "ARGS[1]" control {
    kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
  control_input { name: "INPUT__2" control {
    kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } }
  state { input_name: "ARGS[3]" output_name: "RESULT[0]" data_type: TYPE_FP32 dims: [1] }
}
"""
)
