"""What an engine's model counts, under names that dashboards for it know.

On where the config has REPORT_CUSTOM_METRICS. The engine's loop thread. Source: spec MET-060.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from serving.backends.llm.engine import Piece
from serving.backends.python import pb_utils

_TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000]
_FIRST = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
_EACH = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
_WHOLE = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60]


class Figures:
    """The families of one model version."""

    def __init__(self, prefix: str, labels: dict[str, str]) -> None:
        self._prefix = prefix
        self._labels = labels
        self._families: list[Any] = []
        self.prompt_tokens = self._counter("prompt_tokens_total", "Tokens of prompts")
        self.generated_tokens = self._counter("generation_tokens_total", "Tokens generated")
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "Seconds from arrival to the first token", _FIRST
        )
        self.each_token = self._histogram(
            "time_per_output_token_seconds", "Seconds for each token after the first", _EACH
        )
        self.whole = self._histogram(
            "e2e_request_latency_seconds", "Seconds from arrival to the last token", _WHOLE
        )
        self.prompt_length = self._histogram(
            "request_prompt_tokens", "Tokens of a request's prompt", _TOKENS
        )
        self.answer_length = self._histogram(
            "request_generation_tokens", "Tokens generated for a request", _TOKENS
        )

        self._share = self._gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0..1")
        self._capacity = self._gauge("kv_cache_max_tokens", "Tokens that the KV cache can hold")

    def kv_cache(self, share: float, max_tokens: int) -> None:
        self._share.set(share)
        self._capacity.set(max_tokens)

    def _gauge(self, name: str, text: str) -> Any:
        family = pb_utils.MetricFamily(self._prefix + name, text, pb_utils.MetricFamily.GAUGE)
        self._families.append(family)
        return family.Metric(labels=self._labels)

    def _counter(self, name: str, text: str) -> Any:
        family = pb_utils.MetricFamily(self._prefix + name, text, pb_utils.MetricFamily.COUNTER)
        self._families.append(family)
        return family.Metric(labels=self._labels)

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Any:
        family = pb_utils.MetricFamily(self._prefix + name, text, pb_utils.MetricFamily.HISTOGRAM)
        self._families.append(family)
        return family.Metric(labels=self._labels, buckets=bounds)


class Stopwatch:
    """Of one call; tells the figures at its end."""

    def __init__(self, figures: Figures | None) -> None:
        self._figures = figures
        self._start = time.monotonic()
        self._first = 0.0
        self._prompt = 0
        self._generated = 0
        self._pieces = 0

    def saw(self, piece: Piece) -> None:
        gained = sum(choice.token_count for choice in piece.choices)
        if gained and not self._generated:
            self._first = time.monotonic()
        self._generated += gained
        self._pieces += 1
        self._prompt = piece.prompt_token_count or self._prompt

    def ended(self) -> None:
        figures = self._figures
        if figures is None or not self._prompt:
            return
        now = time.monotonic()
        figures.prompt_tokens.increment(self._prompt)
        figures.prompt_length.observe(self._prompt)
        figures.whole.observe(now - self._start)
        if not self._generated:
            return
        figures.generated_tokens.increment(self._generated)
        figures.answer_length.observe(self._generated)
        if self._pieces > 1:  # an answer in one piece does not tell when its tokens came
            figures.first_token.observe(self._first - self._start)
        if self._pieces > 1 and self._generated > 1:
            figures.each_token.observe((now - self._first) / (self._generated - 1))
