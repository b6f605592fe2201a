"""Traces of models that call other models: who is a child of whom, what a model can know of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.errors import ServingError
from serving.options import TraceSettings
from serving.tracing.trace import Trace
from serving.tracing.tracer import Tracer
from tests.serving.backends.python.serving_models import (
    ADD_ONE,
    ask_server,
    served,
    source_of,
)
from tests.serving.tracing.test_opentelemetry import CALLER, Traced

BODY = """
out = []
for r in requests:
    call("add", value_in(r)).exec()
    call("add", value_in(r), trace=r.trace()).exec()
    told = pb_utils.TritonError(str(r.trace().get_context()))
    out.append(pb_utils.InferenceResponse(error=told))
return out
"""


async def test_calls_made_with_a_trace_are_children_of_the_request(tmp_path: Path) -> None:
    """TRC-007, PB-047: only those; TRC-009: and the model may carry the context on."""
    models = {"add": source_of(ADD_ONE), "m": source_of(BODY)}
    async with served(tmp_path / "models", models) as server:

        async def context_in(trace: Trace | None) -> str:
            with pytest.raises(ServingError) as caught:
                await ask_server(server, "m", trace=trace)
            if trace is not None:
                trace.end()
            return caught.value.message

        file = Tracer(TraceSettings(("TIMESTAMPS",), 1, file=str(tmp_path / "t")))
        traced = Traced()
        in_file = await context_in(file.sample("m"))
        in_spans = await context_in(traced.tracer.sample("m", CALLER))
        untraced = await context_in(None)

    file.close()
    heads = [item for item in json.loads((tmp_path / "t").read_text()) if "model_name" in item]
    assert {(item["model_name"], item.get("parent_id")) for item in heads} == {
        ("m", None),
        ("add", 1),
    }
    spans = traced.spans()
    (called,) = [span for span in spans if span.name == "add"]
    (calling,) = [span for span in spans if span.name == "m"]
    assert called.parent.span_id == calling.context.span_id
    assert in_spans.endswith(
        f'{{"traceparent":"00-{CALLER.trace_id:032x}-{calling.context.span_id:016x}-01"}}'
    )
    assert (in_file, untraced) == ("None", "None")
