"""Modules that tests script, and what they need around them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn


class Sums(nn.Module):
    """Two tensors in, their sum and their difference out."""

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return left + right, left - right


class One(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Places(nn.Module):
    """Says which argument it got where."""

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return a * 100 + b * 10 + c, c


class Mapped(nn.Module):
    def forward(self, tensors: dict[str, Tensor]) -> Tensor:
        return tensors["A"] - tensors["B"]


class TwoMaps(nn.Module):
    def forward(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
        return a["x"] + b["x"]


class MapAndTensor(nn.Module):
    def forward(self, a: dict[str, Tensor], b: Tensor) -> Tensor:
        return a["x"] + b


class Rate(nn.Module):
    def forward(self, x: Tensor, rate: int) -> Tensor:
        return x * rate


class Defaults(nn.Module):
    def forward(self, x: Tensor, bias: Tensor | None = None, factor: int = 3) -> Tensor:
        y = x * factor
        if bias is not None:
            y = y + bias
        return y


class Shout(nn.Module):
    """Text to text, and its lengths."""

    def forward(self, words: list[str]) -> tuple[list[str], Tensor]:
        return [word.upper() for word in words], torch.tensor([len(word) for word in words])


class Listed(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x]


class Keyed(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": x}


class Scalar(nn.Module):
    def forward(self, x: Tensor) -> float:
        return float(x.sum())


class ListedInside(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return x, [x]


class Counter(nn.Module):
    """Tells how often this very module has run, in a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.count


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


class Picky(nn.Module):
    """Takes 512 samples, as a speech detector does."""

    def forward(self, x: Tensor) -> Tensor:
        if x.size(-1) != 512:
            raise ValueError(f"provided number of samples is {x.size(-1)}, expected 512")
        return x


class WithoutForward(nn.Module):
    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x


class Previous(nn.Module):
    """Answers with the input of the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        before = self.last
        self.last = x
        return before.expand(x.shape)


class Hoards(nn.Module):
    """Answers with its first input, which it keeps in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.jit.Attribute([], list[Tensor])

    def forward(self, x: Tensor) -> Tensor:
        self.kept.insert(0, x)
        return self.kept[-1]


class Told(nn.Module):
    """Says in words how much there is of each row; without rows, that there is nothing."""

    def forward(self, x: Tensor | None = None, counts: Tensor | None = None) -> list[str]:
        if counts is None:
            return ["nothing"]
        return [str(int(count)) for count in counts]


class Remembers(nn.Module):
    """A running sum, its state kept by the server."""

    def forward(self, x: Tensor, start: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = x + state * (1 - start)
        return state, state


class Net(nn.Module):
    """Four numbers to two, with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Gradient(nn.Module):
    """Whether a result could be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * self.weight
        return y, torch.full_like(x, float(y.requires_grad))


class Lost(nn.Module):
    """Fails as a CUDA kernel does that has met an assertion."""

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            raise RuntimeError("CUDA error: device-side assert triggered")
        return x


def seeded_net() -> Net:
    torch.manual_seed(7)
    return Net().eval()


def write(module: nn.Module, model_directory: Path, filename: str = "model.pt") -> Path:
    """Script it into version 1."""
    version = model_directory / "1"
    version.mkdir(exist_ok=True)
    torch.jit.script(module).save(str(version / filename))
    return version / filename
