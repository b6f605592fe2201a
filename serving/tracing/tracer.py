"""Which requests are traced: settings, overrides of single models, sampling. Loop thread only.

Source: spec TRC-001..003, TRC-008, HTTP-080..084.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

from serving.errors import InvalidArgumentError, UnsupportedError
from serving.options import TraceSettings
from serving.tracing.context import Spans, TraceContext
from serving.tracing.opentelemetry import SpanSink
from serving.tracing.settings import TraceChange, applied, read_change
from serving.tracing.trace import Trace
from serving.tracing.trace_file import TraceFile


class TraceSink(Protocol):
    """Where traces go that have ended."""

    def put(self, trace: Trace) -> None: ...

    def close(self) -> None:
        """Blocks until nothing is left."""


class _Sampler:
    """Every rate-th request, until the count is over."""

    def __init__(self, settings: TraceSettings) -> None:
        self.settings = settings
        self._seen = 0
        self._left = settings.count

    def take(self) -> bool:
        if not self._left or not self.settings.rate:
            return False
        is_chosen = self._seen % self.settings.rate == 0
        self._seen += 1
        if is_chosen and self._left > 0:
            self._left -= 1
        return is_chosen


class Tracer:
    """Of one server."""

    def __init__(
        self, settings: TraceSettings | None = None, sink: TraceSink | None = None
    ) -> None:
        """`sink`: where traces go, instead of where the settings say.

        Raises: UnavailableError where mode opentelemetry is wanted and not installed.
        """
        self.is_on = False
        """Is anything traced at all? Front ends look here before they ask."""
        self._start = settings or TraceSettings()
        self._own: dict[str, object] = {}
        self._of_models: dict[str, dict[str, object]] = {}
        self._samplers: dict[str, _Sampler] = {}
        self._numbers = itertools.count(1)
        self._file = TraceFile(self._start.file) if self._start.file else None
        self.is_telemetry = self._start.telemetry is not None
        """Traces begin at the callers: front ends pass on what they say of themselves."""
        self._sink: TraceSink | None = sink or self._file
        if self._start.telemetry is not None and sink is None:
            self._file, self._sink = None, SpanSink(self._start.telemetry)
        self._apply()

    def __repr__(self) -> str:
        return f"<Tracer on={self.is_on} {self.settings()} models={sorted(self._of_models)}>"

    def settings(self, model: str = "") -> TraceSettings:
        everyone = applied(self._start, self._own)
        return applied(everyone, self._of_models.get(model, {})) if model else everyone

    def change(self, wanted: Mapping[str, object], model: str = "") -> TraceSettings:
        """Of all models, or of one. Raises ServingError, and changes nothing, on a mistake.

        Levels cannot be had without a file, which is given at the start alone. The caller has made
        sure that there is such a model.
        """
        if self.is_telemetry:
            raise UnsupportedError(
                "trace settings cannot be changed while the server runs in mode opentelemetry: "
                "start it with other --trace-config options"
            )
        change: TraceChange = read_change(wanted)
        if change.values.get("levels", ("OFF",)) != ("OFF",) and self._sink is None:
            raise InvalidArgumentError(
                "Attempting to set invalid trace setting: trace file name is not given; start the "
                "server with --trace-config triton,file=<path>"
            )
        if model:
            self._of_models[model] = change.merged(self._of_models.get(model, {}))
        else:
            self._own = change.merged(self._own)
        self._apply()
        return self.settings(model)

    def sample(self, model: str, caller: TraceContext | None = None) -> Trace | None:
        """A trace for this request, or None when it is not its turn. One whose caller traces it is
        traced always, as by Triton.
        """
        sampler = self._samplers.get(model)
        if sampler is None:
            if model in self._of_models:
                sampler = self._samplers[model] = _Sampler(self.settings(model))
            else:
                sampler = self._samplers[""]
        settings = sampler.settings
        if not settings.is_on or (caller is None and not sampler.take()):
            return None
        return Trace(
            next(self._numbers),
            model,
            levels=(settings.has_timestamps, settings.has_tensors),
            end=self._ended,
            next_number=self._next_number,
            spans=Spans.of_request(caller) if self.is_telemetry else None,
        )

    def close(self) -> None:
        """Blocks until all traces are where they go."""
        self.is_on = False
        if self._sink is not None:
            self._sink.close()

    def _next_number(self) -> int:
        return next(self._numbers)

    def _ended(self, trace: Trace) -> None:
        if self._sink is not None:
            self._sink.put(trace)

    def _apply(self) -> None:
        """Counting begins anew with every change, as in Triton."""
        everyone = self.settings()
        self._samplers = {"": _Sampler(everyone)}
        self.is_on = everyone.is_on or any(self.settings(name).is_on for name in self._of_models)
        if self._file is not None:
            self._file.rotate(everyone.log_frequency)
