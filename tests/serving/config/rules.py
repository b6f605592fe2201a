"""Small configs to break one rule at a time, and what validation says of them."""

from __future__ import annotations

from serving.config.complete import complete
from serving.config.findings import errors_of, one_line
from serving.config.pbtxt import parse
from serving.config.validate import validate

INT = "int32_false_true: [0, 1]"
BASE = 'backend: "onnxruntime" '
IO = (
    'input { name: "A" data_type: TYPE_FP32 dims: [4] } '
    'output { name: "B" data_type: TYPE_FP32 dims: [4] } '
)


def findings_of(text, *, name="m", directory=None, completed=True, **options):
    parsed = parse(text)
    if completed and parsed.config is not None:
        complete(parsed.config, name=name, model_directory=directory)
    findings = validate(parsed, directory_name=name, model_directory=directory, **options)
    assert all(item.hint for item in errors_of(findings)), "an error without a mend"
    return findings


def the_error(text, **options):
    errors = errors_of(findings_of(text, **options))
    assert len(errors) == 1, [one_line(item) for item in errors]
    return errors[0]


def sequence(controls):
    return f"{BASE} max_batch_size: 4 {IO} sequence_batching {{ {controls} }}"


def control(name, body):
    return f'control_input {{ name: "{name}" control {{ {body} }} }}'


def ensemble(steps, extra=""):
    return f'platform: "ensemble" {IO} ensemble_scheduling {{ {steps} }} {extra}'


def step(inputs, outputs):
    maps = [f'input_map {{ key: "x" value: "{item}" }}' for item in inputs]
    maps += [
        f'output_map {{ key: "y{index}" value: "{item}" }}' for index, item in enumerate(outputs)
    ]
    return f'step {{ model_name: "part" {" ".join(maps)} }} '
