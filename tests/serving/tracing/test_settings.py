"""Trace settings: what callers may change, and how a model's own stand above those of all.

HTTP-080..082, GRPC-015, TRC-001, TRC-002, CLI-090, CLI-160.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving import cli
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError, UnsupportedError
from serving.options import TelemetryOptions, TraceSettings
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor
from serving.tracing.trace import Trace
from serving.tracing.tracer import Tracer

ON: Mapping[str, object] = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}


def tracer(path: Path | None = None, **settings: Any) -> Tracer:
    return Tracer(TraceSettings(file=str(path or "/nowhere/trace.json"), **settings))


def test_http_080_every_value_is_a_string_but_the_levels() -> None:
    assert Tracer().settings().as_json() == {
        "trace_level": ["OFF"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "log_frequency": "0",
        "trace_file": "",
        "trace_mode": "triton",
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"trace_level": ["OFF", "TENSORS"]}, "only one trace level 'OFF'"),
        ({"trace_level": ["FOO"]}, "'FOO' is none of OFF, TIMESTAMPS, TENSORS"),
        ({"trace_level": "TIMESTAMPS"}, "expected a list"),
        ({"trace_level": [["OFF"]]}, "is none of"),
        ({"trace_rate": 5}, "a number as a string"),
        ({"trace_rate": ["5"]}, "a number as a string"),
        ({"trace_rate": "x"}, "'trace_rate', got: x"),
        ({"trace_rate": "-3"}, "out of range"),
        ({"trace_rate": "99999999999999999999"}, "out of range"),
        ({"trace_count": "-2"}, "out of range"),
        ({"log_frequency": "-1"}, "out of range"),
    ],
)
def test_http_081_a_wrong_value_is_refused_and_nothing_changes(
    wrong: dict[str, object], words: str
) -> None:
    of_all = tracer()
    before = of_all.settings()

    with pytest.raises(InvalidArgumentError, match=words):
        of_all.change({"trace_rate": "7"} | wrong if "trace_rate" not in wrong else wrong)

    assert of_all.settings() == before


def test_http_081_levels_without_a_file_are_refused() -> None:
    """The file is given at the start alone, so that such a change would trace nothing."""
    nowhere = Tracer()

    with pytest.raises(InvalidArgumentError, match="trace file name is not given"):
        nowhere.change(ON)
    assert nowhere.change({"trace_level": ["OFF"], "trace_rate": "7"}).rate == 7


def test_http_081_nobody_may_choose_the_file() -> None:
    with pytest.raises(UnsupportedError, match="--trace-config"):
        tracer().change({"trace_file": "/etc/passwd"})


def test_http_081_null_goes_back_and_unknown_names_are_passed_over() -> None:
    of_all = tracer(rate=5)
    of_all.change({"trace_rate": "9", "nothing": "1", "trace_mode": "opentelemetry"})
    assert of_all.settings().rate == 9

    of_all.change({"trace_rate": None})
    assert of_all.settings().rate == 5


def test_http_082_a_models_own_fields_stand_above_those_of_all_one_by_one() -> None:
    of_all = tracer()
    of_all.change({"trace_rate": "2"}, "m")
    of_all.change({"trace_rate": "9", "trace_count": "3"})
    assert (of_all.settings("m").rate, of_all.settings("m").count) == (2, 3)

    of_all.change({"trace_rate": None}, "m")
    assert of_all.settings("m").rate == 9


def chosen(of_all: Tracer, model: str, requests: int) -> list[bool]:
    return [of_all.sample(model) is not None for _ in range(requests)]


def test_trc_002_every_rate_th_request_is_traced_until_the_count_is_over() -> None:
    of_all = tracer(levels=("TIMESTAMPS",), rate=2, count=2)

    assert chosen(of_all, "m", 6) == [True, False, True, False, False, False]
    of_all.change({"trace_count": "1"})
    assert chosen(of_all, "m", 3) == [True, False, False]


def test_trc_002_a_model_is_sampled_by_its_own_settings() -> None:
    of_all = tracer()
    of_all.change(ON, "m")

    assert of_all.is_on
    assert chosen(of_all, "other", 2) == [False, False]
    assert chosen(of_all, "m", 2) == [True, True]


@pytest.mark.parametrize(
    "settings", [{"rate": 0}, {"count": 0}, {"levels": ("OFF",)}, {"file": ""}]
)
def test_nothing_is_traced_where_there_is_nothing_to_trace(settings: dict[str, Any]) -> None:
    known = {"levels": ("TIMESTAMPS",), "rate": 1, "file": "/nowhere"} | settings
    of_all = Tracer(TraceSettings(**known))

    assert not of_all.is_on
    assert of_all.sample("m") is None


def finished(trace: Trace | None, request_id: str = "") -> None:
    assert trace is not None
    request = InferenceRequest("m", 3, request_id)
    array = np.array([[1, 2]], np.int32)
    request.inputs["IN"] = InputTensor("IN", BY_NAME["INT32"], (1, 2), array)
    times = request.times
    times.request_start_ns, times.queue_start_ns, times.compute_start_ns = 10, 20, 30
    text = np.array([b"a", b"\xff"], np.object_)
    outputs = [
        OutputTensor("OUT", BY_NAME["BYTES"], (2,), text),
        OutputTensor("FLAG", BY_NAME["BOOL"], (1,), np.array([True])),
    ]
    trace.record(request, InferenceResponse("m", 3, request_id, outputs))
    trace.end()


def test_trc_004_the_file_is_a_json_array_of_models_moments_and_tensors(tmp_path: Path) -> None:
    of_all = tracer(tmp_path / "t.json", levels=("TIMESTAMPS", "TENSORS"), rate=1)
    finished(of_all.sample("m"), "q1")
    of_all.close()

    head, moments, *tensors = json.loads((tmp_path / "t.json").read_text())
    assert head == {"id": 1, "model_name": "m", "model_version": 3, "request_id": "q1"}
    names = [item["name"] for item in moments["timestamps"]]
    assert names[:3] == ["REQUEST_START", "QUEUE_START", "COMPUTE_START"]
    assert names[-2:] == ["INFER_RESPONSE_COMPLETE", "REQUEST_END"]
    assert tensors == [
        {
            "id": 1,
            "activity": "TENSOR_QUEUE_INPUT",
            "tensor": {"name": "IN", "data": "1,2", "shape": "1,2", "dtype": "INT32"},
        },
        {
            "id": 1,
            "activity": "TENSOR_BACKEND_OUTPUT",
            "tensor": {"name": "OUT", "data": "a,\\xff", "shape": "2", "dtype": "BYTES"},
        },
        {
            "id": 1,
            "activity": "TENSOR_BACKEND_OUTPUT",
            "tensor": {"name": "FLAG", "data": "1", "shape": "1", "dtype": "BOOL"},
        },
    ]


def test_trc_003_with_a_frequency_there_is_one_file_for_so_many_traces(tmp_path: Path) -> None:
    of_all = tracer(tmp_path / "t", levels=("TIMESTAMPS",), rate=1, log_frequency=2)
    for _ in range(3):
        finished(of_all.sample("m"))
    of_all.close()

    files = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    numbers = {name: sorted({entry["id"] for entry in entries}) for name, entries in files.items()}
    assert numbers == {"t.0": [1, 2], "t.1": [3]}


def test_trc_007_a_child_names_its_parent_and_ends_with_its_answer(tmp_path: Path) -> None:
    of_all = tracer(tmp_path / "t", levels=("TIMESTAMPS",), rate=1)
    parent = of_all.sample("ensemble")
    assert parent is not None
    child = parent.child("part")
    request = InferenceRequest("part", 1)
    child.record(request, InferenceResponse("part", 1))
    parent.end()
    of_all.close()

    heads = [e for e in json.loads((tmp_path / "t").read_text()) if "model_name" in e]
    assert [(e["id"], e["model_name"], e.get("parent_id")) for e in heads] == [
        (2, "part", 1),
        (1, "ensemble", None),
    ]


def test_a_file_that_cannot_be_written_costs_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of_all = tracer(levels=("TIMESTAMPS",), rate=1)
    for _ in range(3):
        finished(of_all.sample("m"))
    of_all.close()

    assert caplog.text.count("traces cannot be written to /nowhere/trace.json") == 1


def settings_of(*arguments: str) -> tuple[TraceSettings, tuple[str, ...]]:
    line = cli.parse(["--model-repository=r", *arguments])
    assert line is not None
    return line.frontends.trace, line.warnings


def test_cli_090_trace_config_gives_the_settings_at_start() -> None:
    settings, warnings = settings_of(
        "--trace-config=triton,file=/t.json",
        "--trace-config=triton,log-frequency=50",
        "--trace-config=rate=10",
        "--trace-config=count=7",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=TENSORS",
        "--trace-config=mode=triton",
    )

    assert settings == TraceSettings(("TIMESTAMPS", "TENSORS"), 10, 7, 50, "/t.json")
    assert not warnings


def test_cli_160_an_older_option_warns_and_gives_way_to_the_new_one() -> None:
    settings, warnings = settings_of(
        "--trace-rate=5", "--trace-file=/old", "--trace-level=TENSORS", "--trace-config=rate=9"
    )

    assert (settings.rate, settings.file, settings.levels) == (9, "/old", ("TENSORS",))
    assert len(warnings) == 3
    assert any("use --trace-config triton,file=<value>" in text for text in warnings)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("rate", "expects <key>=<value>"),
        ("rat=1", "unknown key 'rat'"),
        ("rate=x", "trace_rate"),
        ("level=ALL", "is none of"),
        ("triton,file=", "must not be empty"),
        ("mode=jaeger", "expects mode=triton or mode=opentelemetry"),
        ("opentelemetry,url=localhost:4318", "begins with http:// or https://"),
        ("opentelemetry,resource=vision", "expects resource=<key>=<value>"),
        ("opentelemetry,bsp_max_queue_size=0", "whole number from 1"),
    ],
)
def test_a_wrong_trace_config_is_one_sentence(value: str, words: str) -> None:
    with pytest.raises(cli.CommandLineError, match=words):
        settings_of(f"--trace-config={value}")


def test_trc_008_options_of_opentelemetry() -> None:
    settings, warnings = settings_of(
        "--trace-config=mode=opentelemetry",
        "--trace-config=opentelemetry,url=http://collector:4318/v1/traces",
        "--trace-config=opentelemetry,resource=service.name=vision",
        "--trace-config=opentelemetry,resource=site=a=b",
        "--trace-config=opentelemetry,bsp_max_queue_size=64",
        "--trace-config=opentelemetry,bsp_schedule_delay=10",
        "--trace-config=opentelemetry,bsp_max_export_batch_size=32",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=TENSORS",
        "--trace-config=rate=0",
    )

    resource = (("service.name", "vision"), ("site", "a=b"))
    assert settings.telemetry == TelemetryOptions(
        "http://collector:4318/v1/traces", resource, 64, 10, 32
    )
    assert settings.is_on, "callers that trace are traced"
    assert warnings == ("trace level TENSORS has no effect in mode opentelemetry",)
    assert settings.as_json() == {
        "trace_level": ["TIMESTAMPS", "TENSORS"],
        "trace_rate": "0",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": "http://collector:4318/v1/traces",
        "resource": "service.name=vision,site=a=b",
        "bsp_schedule_delay": "10",
        "bsp_max_export_batch_size": "32",
        "bsp_max_queue_size": "64",
    }


def test_options_of_the_mode_that_is_off_warn() -> None:
    settings, warnings = settings_of("--trace-config=opentelemetry,bsp_schedule_delay=10")

    assert settings.telemetry is None
    assert warnings == (
        "--trace-config opentelemetry,... has no effect without mode=opentelemetry",
    )


def test_a_batch_of_spans_fits_into_their_queue() -> None:
    with pytest.raises(cli.CommandLineError, match="must not be larger than bsp_max_queue_size"):
        settings_of(
            "--trace-config=mode=opentelemetry", "--trace-config=opentelemetry,bsp_max_queue_size=8"
        )
