"""What both engines say: the words of the prompt backwards, each after a pause; and a tokenizer."""

from __future__ import annotations

import os
from typing import Any


def words_of(prompt: str | list[int]) -> list[str]:
    if isinstance(prompt, list):
        return [f"#{token}" for token in reversed(prompt)]
    return prompt.split()[::-1]


def pause_s() -> float:
    return float(os.environ.get("ECHO_PAUSE_S", "0.002"))


class Tokenizer:
    """As Hugging Face's; a token for each letter."""

    def __init__(self, chat_template: str | None) -> None:
        self.chat_template = chat_template

    def apply_chat_template(
        self, messages: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        assert self.chat_template
        if messages[0]["role"] == "system":
            raise ValueError("System role not supported")
        return "".join(self.chat_template.format(**item) for item in messages)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return list(map(ord, text))
