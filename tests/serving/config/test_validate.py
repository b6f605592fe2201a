"""The load-time rules: what is refused, where, and what the message mentions."""

from __future__ import annotations

import pytest

from serving.config.findings import Severity, errors_of, one_line
from serving.config.repair import apply_repair
from serving.config.validate import Available
from tests.serving.config.data import BAD, BAD_OUTCOMES, GOOD
from tests.serving.config.rules import (
    BASE,
    IO,
    ensemble,
    findings_of,
    sequence,
    step,
    the_error,
)


@pytest.mark.parametrize("name", GOOD)
def test_what_a_real_triton_loads_has_no_error_and_no_warning(name):
    found = findings_of(GOOD[name], name=name, available=Available(gpu_count=0))

    assert [one_line(item) for item in found if item.severity is not Severity.NOTE] == []


NEEDS_THE_MODEL = {
    "auto_conflict",
    "auto_raise",
    "ens_badmap",
    "ens_mbs_mismatch",
    "fail_noclass",
    "fail_syntax",
    "bad_nobackend",
}
"""Decided by the files, the model code or other models, not by the config alone."""


@pytest.mark.parametrize("name", sorted(set(BAD) - NEEDS_THE_MODEL))
def test_what_a_real_triton_refuses_is_refused(name):
    errors = errors_of(findings_of(BAD[name], name=name))

    assert bool(errors) == (BAD_OUTCOMES[name] == "refused")
    assert all(item.line for item in errors)


@pytest.mark.parametrize(
    ("code", "text", "field", "words"),
    [
        ("VAL-02", IO, "platform", "unexpected platform type"),
        ("VAL-03", ensemble(step("A", "B")) + BASE, "backend", "platform type ensemble"),
        ("VAL-04", BASE + IO + 'platform: "tensorrt_plan"', "platform", "'onnxruntime'"),
        ("VAL-05", BASE + IO + "max_batch_size: -1", "max_batch_size", "non-negative"),
        ("VAL-56", BASE + IO + 'name: "dog"', "name", "directory name must equal"),
        ("REP-012", BASE + IO + 'default_model_filename: "../x"', "default_model_filename", "out"),
        (
            "REP-008",
            BASE + 'output { name: "o" data_type: TYPE_FP32 dims: 1 label_filename: "/etc/x" }',
            "output[0].label_filename",
            "outside model directory",
        ),
        ("VAL-38", BASE + IO + "model_metrics { metric_control {} }", None, "metric_identifier"),
        (
            "VAL-14",
            sequence("") + "response_cache { enable: true }",
            "response_cache.enable",
            "Response Cache",
        ),
        (
            "VAL-15",
            BASE
            + IO
            + "response_cache { enable: true } model_transaction_policy { decoupled: true }",
            "response_cache.enable",
            "decoupled",
        ),
    ],
)
def test_rules_about_the_whole_model(code, text, field, words):
    error = the_error(text)

    assert error.code == code
    assert field is None or error.field == field
    assert words in error.message


def tensor(body, extra=""):
    return f'{BASE} {extra} input {{ {body} }} output {{ name: "B" data_type: TYPE_FP32 dims: 1 }}'


X = 'name: "x" data_type: TYPE_FP32'


@pytest.mark.parametrize(
    ("code", "text", "field", "words"),
    [
        ("VAL-39", tensor("data_type: TYPE_FP32 dims: 1"), "", "must specify 'name'"),
        ("VAL-39", tensor('name: "x" dims: 1'), "", "must specify 'data_type'"),
        ("VAL-39", tensor(X), "", "must specify 'dims'"),
        ("VAL-40", tensor(f"{X} dims: [2, 0]"), ".dims[1]", "integer >= 1, or -1"),
        ("VAL-40", tensor(f"{X} dims: -2"), ".dims[0]", "got -2"),
        ("VAL-41", tensor(f"{X} dims: 4 reshape {{ shape: 0 }}"), ".reshape.shape[0]", "reshape"),
        ("VAL-42", tensor(f"{X} dims: 1 reshape {{ }}"), ".reshape", "scalar tensors"),
        ("VAL-43", tensor(f"{X} dims: 4 reshape {{ shape: 3 }}"), ".reshape", "different size"),
        (
            "VAL-43",
            tensor(f"{X} dims: [2, -1, 3] reshape {{ shape: [3, -1, 2] }}"),
            ".reshape",
            "different size",
        ),
        (
            "VAL-43",
            tensor(f"{X} dims: 2 reshape {{ }}", "max_batch_size: 4"),
            ".reshape",
            "different size",
        ),
        (
            "VAL-44",
            tensor(f"{X} dims: [-1, 4] reshape {{ shape: 4 }}"),
            ".reshape",
            "different number of variable-size",
        ),
        ("VAL-45", tensor(f"{X} dims: 4 format: FORMAT_NCHW"), ".format", "require 3 dims"),
        ("VAL-46", tensor(f"{X} dims: 4 is_shape_tensor: true"), None, "only supported for Tensor"),
    ],
)
def test_rules_about_inputs_and_outputs(code, text, field, words):
    error = the_error(text)

    assert error.code == code
    assert field is None or error.field == f"input[0]{field}"
    assert words in error.message


@pytest.mark.parametrize(
    "body",
    [
        "dims: [2, 3] reshape { shape: [6] }",
        "dims: [2, -1, 3] reshape { shape: [2, -1, 3, 1] }",
        "dims: [4, -1] reshape { shape: [2, 2, -1] }",
        "dims: 1 reshape { }",
    ],
)
def test_a_reshape_of_equal_size_is_fine(body):
    assert errors_of(findings_of(tensor(f"{X} {body}", "max_batch_size: 4"))) == []


def test_an_input_declared_twice_is_refused_at_the_second():
    error = the_error(f"{BASE}\ninput {{ {X} dims: 1 }}\ninput {{ {X} dims: 1 }}")

    assert (error.line, error.field) == (3, "input[1].name")


def test_a_batch_axis_written_into_dims_is_a_warning():
    text = (
        BASE
        + 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } '
        + 'output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }'
    )

    (warning,) = [item for item in findings_of(text) if item.severity is Severity.WARNING]

    assert "needs shape [-1, -1, 3]" in warning.message
    assert warning.hint.endswith("write dims: [3]")


def group(body):
    return f"{BASE} {IO} instance_group {{ {body} }}"


@pytest.mark.parametrize(
    ("code", "body", "gpus", "words"),
    [
        ("VAL-51", "kind: KIND_CPU gpus: 0", 0, "specifies one or more GPUs"),
        ("VAL-51", "kind: KIND_MODEL gpus: 0", 0, "specifies one or more GPUs"),
        ("VAL-52", "kind: KIND_GPU", 0, "no GPUs are available"),
        ("VAL-53", "kind: KIND_GPU gpus: [0, 2]", 2, "gpu id 2; valid GPU ids are 0, 1"),
        ("VAL-54", 'kind: KIND_CPU profile: "1"', 0, "profile"),
    ],
)
def test_rules_about_instance_groups(code, body, gpus, words):
    error = the_error(group(body), available=Available(gpu_count=gpus))

    assert error.code == code
    assert words in error.message


def test_an_engine_of_tensorrt_is_not_sent_to_the_cpu():
    """VAL-52: it could not run there either."""
    text = f'backend: "tensorrt" {IO} instance_group {{ kind: KIND_GPU }}'
    error = the_error(text, available=Available(gpu_count=0))

    assert error.code == "VAL-52"
    assert "KIND_CPU" not in f"{error.message} {error.hint}"
    assert "onnxruntime" in error.hint


def test_gpus_are_not_judged_where_their_number_is_unknown():
    assert errors_of(findings_of(group("kind: KIND_GPU gpus: 7"))) == []


def test_a_config_that_was_not_completed_lacks_groups_and_a_version_policy():
    codes = {item.code for item in findings_of(BASE + IO, completed=False)}

    assert {"VAL-01", "VAL-06", "VAL-50"} <= codes


def test_a_resource_is_global_or_of_the_device():
    body = 'rate_limiter { resources [ { name: "r" }, { name: "r" global: true } ] }'

    assert the_error(group(body)).code == "VAL-58"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('key: "A" value { data_type: TYPE_FP32 dims: [-1] zero_data: true }', "must be fixed"),
        ('key: "A" value { data_type: TYPE_FP32 dims: [4] }', "where its data comes from"),
        ('key: "A" value { dims: [4] zero_data: true }', "must specify 'data_type'"),
        (
            'key: "A" value { data_type: TYPE_FP32 dims: [4] input_data_file: "raw" }',
            "has 8 bytes, 16 are needed",
        ),
        (
            'key: "A" value { data_type: TYPE_FP32 dims: [4] input_data_file: "../raw" }',
            "no file 'warmup/../raw'",
        ),
    ],
)
def test_rules_about_warmup(tmp_path, body, words):
    (tmp_path / "m" / "warmup").mkdir(parents=True)
    (tmp_path / "m" / "warmup" / "raw").write_bytes(bytes(8))
    text = f'{BASE} {IO} model_warmup {{ name: "w" batch_size: 1 inputs {{ {body} }} }}'

    error = the_error(text, directory=tmp_path / "m")

    assert error.code == "VAL-62"
    assert words in error.message


def test_a_warmup_batch_fits_the_model():
    inputs = 'inputs { key: "A" value { data_type: TYPE_FP32 dims: [4] zero_data: true } }'
    text = f'{BASE} {IO} max_batch_size: 2 model_warmup {{ name: "w" batch_size: 5 {inputs} }}'

    assert "batch size 5, max allowed is 2" in the_error(text).message


@pytest.mark.parametrize("size", ["", "batch_size: 0"])
def test_a_warmup_sample_without_a_batch_size_is_skipped_with_a_warning(size):
    text = f'{BASE} {IO} model_warmup {{ name: "w" {size} }}'

    (found,) = [item for item in findings_of(text) if item.severity is not Severity.NOTE]

    assert found.severity is Severity.WARNING
    assert "'w' is skipped" in found.message
    assert found.repair is not None
    assert "batch_size: 1" in apply_repair(text, found.repair)


def test_a_warmup_sample_gives_every_required_input():
    text = f'{BASE} {IO} model_warmup {{ name: "w" batch_size: 1 }}'

    assert "gives no input 'A'" in the_error(text).message


def test_a_backend_that_is_not_there_is_named():
    available = Available(backends=frozenset({"python", "onnxruntime"}))

    error = the_error(f'backend: "pyhton" {IO}', available=available)

    assert error.code == "VAL-57"
    assert error.hint == "backends here: onnxruntime, python"


def test_syntax_errors_come_alone():
    found = findings_of("max_batch_size: ${BATCH}")

    assert [item.code for item in found] == ["C03"]


def test_a_missing_label_file_is_refused(tmp_path):
    (tmp_path / "m").mkdir()
    text = BASE + IO.replace("dims: [4] } ", 'dims: [4] label_filename: "l.txt" } ').replace(
        'label_filename: "l.txt" } output', "} output"
    )

    assert the_error(text, directory=tmp_path / "m").code == "REP-008"
