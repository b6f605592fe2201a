"""What an engine that generates text offers, whichever it is. Pure; the engine's loop thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Prompt = str | list[int]
"""Text, or the ids of its tokens."""


class RequestError(ValueError):
    """The caller asked for something that the engine does not do; the text is for the caller."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine is started."""

    arguments: Mapping[str, Any]
    """What model.json holds: keyword arguments of the engine."""
    directory: Path
    """The version's folder."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Name of each LoRA adapter, and where it lies."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Those of the model's config."""
    on_kv_cache: Callable[[float, int], None] | None = None
    """Called, in the loop's thread, with the share of the KV cache in use, 0..1, and how many
    tokens it can hold. None: nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as an engine sees it."""

    id: str
    prompt: Prompt
    sampling: Mapping[str, Any]
    is_streamed: bool = False
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What one of the answers to a prompt has gained since the last piece."""

    text: str
    token_count: int = 0
    finish_reason: str | None = None
    """`stop` or `length` at its end."""
    cumulative_logprob: float | None = None
    logprobs: Any = None
    """JSON: one object for each token."""


@dataclass(frozen=True, slots=True)
class Piece:
    choices: list[Choice]
    prompt_token_count: int = 0


class TextEngine(Protocol):
    """Every method is called on one event loop, and any number of calls run at once."""

    sampling_names: frozenset[str]
    """Sampling parameters that a request may set."""

    async def start(self) -> None:
        """Load the model. Raises: whatever keeps it from running."""

    def generate(self, call: Call) -> AsyncIterator[Piece]:
        """Pieces as they come where the call is streamed, else one with all.

        Raises: RequestError for what the caller may not ask.
        """

    def chat_tokens(self, messages: list[dict[str, Any]]) -> list[int] | None:
        """The prompt that the tokenizer's own template makes of a chat; None where it has none.

        Raises: RequestError where the template does not take these messages.
        """

    async def embed(self, call: Call) -> tuple[list[float], int]:
        """A vector for the prompt, and how many tokens the prompt has."""

    async def abort(self, call_id: str) -> None:
        """Nobody waits for this call any more; its `generate` ends."""

    async def check_health(self) -> None:
        """Raises: whatever is wrong with the engine."""

    async def stop(self) -> None:
        """Free everything."""
