"""`python -m serving validate`: findings as lines or JSON, and the exit status."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from serving.__main__ import main
from serving.config.pbtxt import parse
from serving.config.repair import Repair, apply_repair

PYTHON = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
IO = (
    'input { name: "A" data_type: TYPE_FP32 dims: [4] }\n'
    'output { name: "B" data_type: TYPE_FP32 dims: [4] }\n'
)


def add_model(root, name, config=f'backend: "python"\n{IO}'):
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(PYTHON)
    (root / name / "config.pbtxt").write_text(config)
    return root / name


def validate(capsys, *arguments):
    status = main(["validate", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_sound_repository_is_status_0_and_says_nothing_but_a_summary(tmp_path, capsys):
    add_model(tmp_path, "a")
    add_model(tmp_path, "b")

    assert validate(capsys, tmp_path) == (0, "", "2 models, 0 errors, 0 warnings\n")


def test_an_error_is_status_1_and_one_line_with_place_and_mend(tmp_path, capsys):
    model = add_model(tmp_path, "a", f'backend: "python"\n{IO}max_batch_size: -1\n')

    status, out, err = validate(capsys, tmp_path)

    assert status == 1
    assert out == (
        f"{model}/config.pbtxt:4:1: error: 'max_batch_size' must be non-negative, got -1 "
        "(use 0 for a model without a batch axis)\n"
    )
    assert err == "1 model, 1 error, 0 warnings\n"


def test_a_warning_alone_is_status_0(tmp_path, capsys):
    add_model(tmp_path, "a", f'backend: "python"\n{IO}dynamic_batching {{ }}\n')

    status, out, _ = validate(capsys, tmp_path)

    assert status == 0
    assert ":4:1: warning: dynamic_batching has no effect" in out


@pytest.mark.parametrize("given", ["", "/config.pbtxt"])
def test_one_model_can_be_checked_by_its_directory_or_its_config(tmp_path, capsys, given):
    add_model(tmp_path, "good")
    model = add_model(tmp_path, "bad", "max_batch_size: x")

    status, out, err = validate(capsys, f"{model}{given}")

    assert (status, err) == (1, "1 model, 1 error, 0 warnings\n")
    assert out.startswith(f"{model}/config.pbtxt:1:17: error: ")


def test_a_model_named_twice_is_checked_once(tmp_path, capsys):
    model = add_model(tmp_path, "a")

    assert validate(capsys, tmp_path, model, model / "config.pbtxt")[2].startswith("1 model,")


def test_json_holds_the_findings_and_their_repairs(tmp_path, capsys):
    text = f'backend: "python"\n{IO}max_batchsize: 2\n'
    add_model(tmp_path, "a", text)

    status, out, _ = validate(capsys, "--json", tmp_path)

    report = json.loads(out)
    assert status == 1
    assert (report["ok"], report["errors"], report["warnings"]) == (False, 1, 0)
    (model,) = report["models"]
    assert (model["name"], model["ok"]) == ("a", False)
    (finding,) = model["findings"]
    assert (finding["severity"], finding["line"], finding["code"]) == ("error", 4, "REP-015")
    mended = parse(apply_repair(text, Repair(**finding["repair"]))).config
    assert mended is not None
    assert mended.max_batch_size == 2


def test_notes_are_shown_on_demand(tmp_path, capsys):
    add_model(tmp_path, "a", 'backend: "python"')

    assert validate(capsys, tmp_path)[1] == ""
    assert "note: no input is declared" in validate(capsys, "--notes", tmp_path)[1]


def test_strict_means_without_auto_complete(tmp_path, capsys):
    (add_model(tmp_path, "a") / "config.pbtxt").unlink()

    assert validate(capsys, tmp_path)[0] == 0
    status, out, _ = validate(capsys, "--strict", tmp_path)
    assert status == 1
    assert "config.pbtxt is missing" in out


def test_gpus_are_judged_where_their_number_is_given(tmp_path, capsys):
    add_model(tmp_path, "a", f'backend: "python"\n{IO}instance_group {{ kind: KIND_GPU }}\n')

    assert validate(capsys, tmp_path)[0] == 0
    assert validate(capsys, tmp_path, "--gpus", "0")[0] == 1
    assert validate(capsys, tmp_path, "--gpus", "1")[0] == 0


def ensemble(part):
    maps = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
    return (
        f'platform: "ensemble"\n{IO}ensemble_scheduling {{\n  step {{\n'
        f'    model_name: "{part}" model_version: -1\n    {maps}\n  }}\n}}\n'
    )


def test_ensembles_are_checked_against_the_models_beside_them(tmp_path, capsys):
    add_model(tmp_path, "whole", ensemble("prat"))
    add_model(tmp_path, "part")

    status, out, _ = validate(capsys, tmp_path)

    assert status == 1
    assert "whole/config.pbtxt:6:5: error: in ensemble 'whole', step 0" in out
    assert "did you mean 'part'?" in out


def test_an_ensemble_alone_is_not_blamed_for_parts_that_nobody_showed(tmp_path, capsys):
    model = add_model(tmp_path, "whole", ensemble("elsewhere"))

    assert validate(capsys, model)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "PATH"),
        (["--nonsense", "."], "--nonsense"),
        (["--gpus", "-1", "."], "0 or more"),
        (["/nowhere/at/all"], "not a valid directory"),
        ([__file__], "no config.pbtxt"),
    ],
)
def test_bad_usage_is_status_2_with_one_reason(capsys, arguments, words):
    status, out, err = validate(capsys, *arguments)

    assert (status, out) == (2, "")
    assert words in err


def test_help_is_status_0(capsys):
    status, out, _ = validate(capsys, "--help")

    assert status == 0
    assert "--strict" in out


def test_it_runs_as_a_program(tmp_path):
    add_model(tmp_path, "a")

    result = subprocess.run(
        [sys.executable, "-m", "serving", "validate", str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert (result.returncode, result.stderr) == (0, "1 model, 0 errors, 0 warnings\n")


def test_variants_of_a_config_are_checked_too(tmp_path, capsys):
    """REP-009."""
    model = add_model(tmp_path, "a")
    (model / "configs").mkdir()
    (model / "configs" / "fast.pbtxt").write_text(f'backend: "python"\n{IO}max_batch_size: -1\n')
    (model / "configs" / "raw.pbtxt").write_bytes(b"\xff")

    status, out, _ = validate(capsys, tmp_path)

    assert status == 1
    assert out.splitlines() == [
        f"{model}/configs/fast.pbtxt:4:1: error: 'max_batch_size' must be non-negative, got -1 "
        "(use 0 for a model without a batch axis)",
        f"{model}/configs/raw.pbtxt:1:1: error: byte 0xff is not UTF-8 text (save the file as "
        "UTF-8)",
    ]
