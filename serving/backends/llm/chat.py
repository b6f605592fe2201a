"""The template of a chat that a tokenizer carries, as Hugging Face's have it. Any thread."""

from __future__ import annotations

from typing import Any

from serving.backends.llm.engine import RequestError


def tokens_of_chat(tokenizer: Any, messages: list[dict[str, Any]]) -> list[int] | None:
    """None where the tokenizer has no template. Raises: RequestError."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates raise what they like
        raise RequestError(
            f"the model's chat template does not take these messages: {error}"
        ) from error
    # The template has written the special tokens already.
    return list(tokenizer.encode(text, add_special_tokens=False))
