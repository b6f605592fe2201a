"""Ensembles and their parts: what is refused, where, and what the message mentions."""

from __future__ import annotations

import pytest

from serving.config.complete import complete
from serving.config.findings import Severity
from serving.config.pbtxt import parse
from serving.config.validate_graph import validate_ensemble_graph
from tests.serving.config.val_rows import at_mark

PART = (
    'backend: "python" max_batch_size: 8 '
    'input { name: "x" data_type: TYPE_FP32 dims: [4] } '
    'output { name: "y" data_type: TYPE_FP32 dims: [4] }'
)
DECOUPLED = f"{PART} model_transaction_policy {{ decoupled: true }}"
TWO_INPUTS = PART.replace("output {", 'input { name: "z" data_type: TYPE_FP32 dims: [4] } output {')
SECOND_OUTPUT = 'output { name: "C" data_type: TYPE_FP32 dims: [4] }'
OPTIONAL = TWO_INPUTS.replace('name: "z"', 'name: "z" optional: true')


def step(model, inputs, outputs, version=-1, mark=""):
    maps = "".join(f'\n  input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items())
    maps += "".join(f'\n  output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items())
    head = f'{mark}step {{ model_name: "{model}" model_version: {version}'
    return f"{head}{maps} }}\n"


def ensemble(*steps, dims="[4]", datatype="TYPE_FP32", size=8):
    return (
        f'platform: "ensemble" max_batch_size: {size}\n'
        f'input {{ name: "A" data_type: {datatype} dims: {dims} }}\n'
        'output { name: "B" data_type: TYPE_FP32 dims: [4] }\n'
        f"ensemble_scheduling {{\n{''.join(steps)}}}\n"
    )


PLAIN = step("part", {"x": "A"}, {"y": "B"})


def check(texts, **options):
    """Findings of the ensemble "e", at their places, and the marked place."""
    place, texts["e"] = at_mark(texts["e"])
    parsed = {name: parse(text) for name, text in texts.items()}
    for name, item in parsed.items():
        assert item.config is not None, item.findings
        complete(item.config, name=name, model_directory=None)
    found = validate_ensemble_graph({n: item.config for n, item in parsed.items()}, **options)
    return [parsed["e"].placed(item) for item in found.get("e", [])], place


@pytest.mark.parametrize(
    ("code", "text", "parts", "words"),
    [
        (
            "VAL-70",
            ensemble(PLAIN.replace("model_name", "§model_name")),
            {},
            "contains models that are not available: 'part'",
        ),
        (
            "VAL-71",
            ensemble(PLAIN.replace("model_name", "§model_name").replace("-1", "3")),
            {"part": PART},
            "depends on 'part' whose required version 3 is not loaded",
        ),
        (
            "VAL-72",
            ensemble(step("e", {"A": "A"}, {"B": "B"}).replace("model_name", "§model_name")),
            {},
            "circular dependency between ensembles: e -> e",
        ),
        (
            "VAL-72",
            ensemble(step("f", {"A": "A"}, {"B": "B"}).replace("model_name", "§model_name")),
            {"f": ensemble(step("e", {"A": "A"}, {"B": "B"}))},
            "circular dependency between ensembles: e -> f -> e",
        ),
        (
            "VAL-73",
            ensemble(PLAIN, size=16).replace("max_batch_size", "§max_batch_size"),
            {"part": PART},
            "allows maximum batch size 8",
        ),
        (
            "VAL-74",
            ensemble(
                step("part", {"x": "A", "q": "A"}, {"y": "B"}).replace(
                    'input_map { key: "q"', '§input_map { key: "q"'
                )
            ),
            {"part": PART},
            "mapping to non-existing input 'q'",
        ),
        (
            "VAL-74",
            ensemble(
                step("part", {"x": "A"}, {"y": "B", "Y": "A2"}).replace(
                    'output_map { key: "Y"', '§output_map { key: "Y"'
                )
            ),
            {"part": PART},
            "from non-existing output 'Y'",
        ),
        (
            "VAL-75",
            ensemble(f"§{PLAIN}"),
            {"part": TWO_INPUTS},
            "input 'z' of model 'part' is not mapped to any ensemble tensors",
        ),
        (
            "VAL-76",
            ensemble(PLAIN.replace("input_map", "§input_map"), datatype="TYPE_INT32"),
            {"part": PART},
            "inconsistent data type: TYPE_INT32 in 'e' and TYPE_FP32 in 'part'",
        ),
        (
            "VAL-77",
            ensemble(PLAIN.replace("input_map", "§input_map"), dims="[5]"),
            {"part": PART},
            "inconsistent shape: [-1, 5] in 'e' and [-1, 4] in 'part'",
        ),
        (
            "VAL-78",
            ensemble(
                step("d", {"x": "A"}, {"y": "C"}),
                step("part", {"x": "A", "z": "C"}, {"y": "B"}, mark="§"),
            ),
            {"part": TWO_INPUTS, "d": DECOUPLED},
            "originated from different decoupled models",
        ),
        (
            "VAL-78",
            ensemble(
                step("d", {"x": "A"}, {"y": "B"}), step("part", {"x": "A"}, {"y": "C"})
            ).replace("ensemble_scheduling", f"§{SECOND_OUTPUT} ensemble_scheduling"),
            {"part": PART, "d": DECOUPLED},
            "'B' from step 0 of model 'd', 'C' from the request",
        ),
    ],
)
def test_rules_between_models(code, text, parts, words):
    found, place = check({"e": text, **parts}, versions={"part": [1, 2]})

    errors = [item for item in found if item.severity is Severity.ERROR]
    assert [item.code for item in errors] == [code]
    assert words in errors[0].message
    assert errors[0].hint
    assert (errors[0].line, errors[0].column) == place


def test_sch_091_cache_over_a_part_with_sequences_is_refused():
    text = ensemble(PLAIN).replace("input {", "response_cache { enable: true }\ninput {", 1)
    sequences = f"{PART} sequence_batching {{ }}"

    (finding,), _ = check({"e": text, "part": sequences}, versions={"part": [1]})

    assert (finding.code, finding.field) == ("VAL-14", "response_cache.enable")
    assert "step 0, whose model 'part' has sequence batching" in finding.message
    assert check({"e": text, "part": PART}, versions={"part": [1]})[0] == []


def test_parts_that_cannot_load_or_serve_nothing_are_refused():
    text = ensemble(PLAIN)

    assert "not valid" in check({"e": text, "part": PART}, unavailable={"part"})[0][0].message
    assert (
        "no loaded version" in check({"e": text, "part": PART}, versions={"part": []})[0][0].message
    )


@pytest.mark.parametrize("version", ["model_version: -2", "model_version: 0", ""])
def test_a_version_that_is_not_served_is_refused_and_none_means_0(version):
    text = ensemble(PLAIN.replace("model_version: -1", version))

    (finding,) = check({"e": text, "part": PART}, versions={"part": [1]})[0]

    assert finding.code == "VAL-71"
    assert "is not loaded (served: 1)" in finding.message
    assert "model_version: -1" in finding.hint


def test_a_version_below_minus_1_is_refused_where_versions_are_not_known():
    text = ensemble(PLAIN.replace("model_version: -1", "model_version: -2"))

    assert "version -2 cannot be" in check({"e": text, "part": PART})[0][0].message


def test_a_broken_part_makes_ensembles_of_ensembles_invalid():
    outer = ensemble(step("inner", {"A": "A"}, {"B": "B"}))

    (finding,) = check({"e": outer, "inner": ensemble(PLAIN)})[0]

    assert finding.code == "VAL-71"
    assert "depends on 'inner' which is not valid" in finding.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (ensemble(PLAIN), PART),
        (ensemble(PLAIN), OPTIONAL),
        (ensemble(PLAIN, dims="[-1]"), PART),
        (ensemble(PLAIN, size=0), PART),
        (ensemble(PLAIN, size=4), PART),
        (ensemble(PLAIN), PART.replace("max_batch_size: 8", "").replace("[4]", "[-1, 4]")),
    ],
)
def test_what_fits_is_accepted(text, part):
    assert check({"e": text, "part": part})[0] == []


def test_one_decoupled_part_makes_the_whole_ensemble_decoupled():
    """VAL-79."""
    inner, outer = ensemble(PLAIN), ensemble(step("inner", {"A": "A"}, {"B": "B"}))

    (finding,) = check({"e": outer, "inner": inner, "part": DECOUPLED})[0]

    assert (finding.severity, finding.code) == (Severity.NOTE, "VAL-79")


def test_models_that_are_no_ensembles_are_not_judged():
    assert validate_ensemble_graph({"part": parse(PART).config}) == {}
