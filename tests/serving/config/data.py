"""Configs recorded from a real Triton, and what it did with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / "data" / "config"


def texts(folder: str) -> dict[str, str]:
    """Model name -> config.pbtxt text."""
    return {path.stem: path.read_text() for path in sorted((ROOT / folder).glob("*.pbtxt"))}


GOOD: dict[str, str] = texts("models")
BAD: dict[str, str] = texts("models_bad")
BAD_OUTCOMES: dict[str, str] = json.loads((ROOT / "models_bad.json").read_text())
TRITON_JSON: dict[str, Any] = json.loads((ROOT / "triton_json.json").read_text())
