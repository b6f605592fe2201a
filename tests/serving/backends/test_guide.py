"""The backend of docs/guides/write-a-backend.md is served as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError
from serving.in_process import ModelServer

GUIDE = Path(__file__).parents[3] / "docs/guides/write-a-backend.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.S)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Started in the reader's folder, with paths that begin there, as the page writes them."""
    monkeypatch.chdir(tmp_path)
    (code,), (config,) = blocks("python"), blocks("protobuf")
    assert len([line for line in code.splitlines() if line.strip()]) <= 40
    folder, model = Path("backends/scale"), Path("models/tripled")
    (model / "1").mkdir(parents=True)
    folder.mkdir(parents=True)
    (folder / "conch_scale.py").write_text(code)
    (model / "config.pbtxt").write_text(config)
    (model / "1" / "factor.txt").write_text("3")
    settings = {"scale": {"largest-factor": "10"}}
    with ModelServer(
        model.parent, backend_directory=folder.parent, backend_config=settings
    ) as server:
        yield server


def test_the_backend_of_the_guide_answers(served):
    served.load("tripled")

    answer = served.infer("tripled", {"IN": np.array([[1, 2]], np.float32)})

    assert answer["OUT"].tolist() == [[3, 6]]
    assert answer["OUT"].dtype == np.float32


@pytest.mark.parametrize(("text", "reason"), [("11", "factor 11.0 is over 10.0"), ("x", "no num")])
def test_the_backend_of_the_guide_refuses_what_it_cannot_load(served, tmp_path, text, reason):
    (tmp_path / "models/tripled/1/factor.txt").write_text(text)

    with pytest.raises(ServingError, match=reason):
        served.load("tripled")
