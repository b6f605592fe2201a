"""Every backend goes through the one conformance suite."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from serving.backends.registry import BUILT_IN

TESTS = Path(__file__).parents[1] / "serving" / "backends"
ONE_ANSWER_FOR_ONE_REQUEST = BUILT_IN.keys() - {
    # Streams of answers, which the suite does not speak of; their own tests do.
    *("repeat", "square", "vllm", "tensorrtllm"),
    # Answers that depend on the requests before, or no answer at all.
    *("sequence", "dyna_sequence", "query"),
    # Needs a GPU to load anything.
    "tensorrt",
}


def subclasses() -> dict[str, str]:
    """Backend -> class, of every subclass of the suite in the tests."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            if not any(getattr(base, "id", "") == "BackendContract" for base in node.bases):
                continue
            for item in node.body:
                if isinstance(item, ast.Assign) and getattr(item.targets[0], "id", "") == "backend":
                    found[ast.literal_eval(item.value)] = f"{path.name}: {node.name}"
    return found


@pytest.mark.parametrize("backend", sorted(ONE_ANSWER_FOR_ONE_REQUEST))
def test_every_backend_that_answers_tensors_runs_the_conformance_suite(backend: str) -> None:
    assert backend in subclasses(), f"subclass BackendContract for '{backend}'"
