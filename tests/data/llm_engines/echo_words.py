"""What both engines say: the words of the prompt backwards, each after a pause."""

from __future__ import annotations

import os


def words_of(prompt: str | list[int]) -> list[str]:
    if isinstance(prompt, list):
        return [f"#{token}" for token in reversed(prompt)]
    return prompt.split()[::-1]


def pause_s() -> float:
    return float(os.environ.get("ECHO_PAUSE_S", "0.002"))
