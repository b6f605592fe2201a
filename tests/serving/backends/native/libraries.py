"""Backends in C that tests compile: the examples, and one that does what it is told."""

from __future__ import annotations

from pathlib import Path

from serving.backends.native import INCLUDE_DIRECTORY
from tests.serving.backends.compiled_c import compile_library

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "native_backend"
PROBE = ROOT / "tests" / "data" / "native" / "probe.c"
PROBE_CONFIG = """
backend: "probe" max_batch_size: 4
input { name: "WHAT" data_type: TYPE_STRING dims: [1] }
input { name: "X" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
output { name: "TEXT" data_type: TYPE_STRING dims: [1] }
"""
SCALE_CONFIG = """
backend: "scale" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
COUNT_CONFIG = """
backend: "count"
input { name: "IN" data_type: TYPE_INT32 dims: [1] }
output { name: "OUT" data_type: TYPE_INT32 dims: [1] }
"""


def build(source: Path, target: Path, *options: str) -> Path:
    flags = ("-std=gnu11", "-pthread", f"-I{INCLUDE_DIRECTORY}", *options)
    return compile_library(source, target, *flags)


def example(name: str, folder: Path) -> Path:
    return build(EXAMPLES / f"{name}.c", folder / f"libconch_{name}.so")


def write_model(root: Path, name: str, config: str) -> Path:
    """The model's version folder."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    return root / name / "1"
