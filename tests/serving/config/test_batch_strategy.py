"""What the check says about a custom batching strategy. Spec VAL-63, SCH-043."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.config.batch_strategy import FUNCTIONS
from serving.config.findings import Severity
from tests.serving.config.rules import IO, findings_of

WHOLE = "".join(f"def {name}(*arguments): ...\n" for name in FUNCTIONS)
BATCHED = f'backend: "identity" max_batch_size: 4 {IO}'
PARAMETER = 'parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" value {{ string_value: "{}" }} }}'


def found(tmp_path: Path, source: str, extra: str = "dynamic_batching {}") -> list[tuple]:
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    (model / "own.py").write_text(source)
    text = f"{BATCHED} {extra}\n{PARAMETER.format('m/own.py')}"
    findings = findings_of(text, directory=model)
    return [(item.severity, item.message, item.line) for item in findings if item.code == "VAL-63"]


def test_a_strategy_with_its_five_functions_is_sound(tmp_path):
    assert found(tmp_path, WHOLE) == []


def test_imported_and_assigned_functions_count(tmp_path):
    source = "from other import batch_finalize, batch_initialize as batcher_finalize\n"
    source += "batcher_initialize = batch_initialize = batch_include_request = print\n"

    assert found(tmp_path, source) == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_missing_function_is_an_error_at_the_parameter(tmp_path, name):
    source = WHOLE.replace(f"def {name}(", "def other(")

    [(severity, message, line)] = found(tmp_path, source)

    assert severity is Severity.ERROR
    assert message.endswith(f"it lacks {name}")
    assert line == 2


def test_a_strategy_that_is_no_python_is_an_error(tmp_path):
    [(severity, message, _)] = found(tmp_path, "def (")

    assert severity is Severity.ERROR
    assert "'own.py' cannot be read as Python" in message


def test_a_strategy_without_dynamic_batching_is_a_warning(tmp_path):
    [(severity, message, _)] = found(tmp_path, WHOLE, extra="")

    assert severity is Severity.WARNING
    assert "has no effect: without dynamic_batching" in message


@pytest.mark.parametrize("folder", [".", "1"])
def test_a_strategy_that_is_not_named_is_checked_too(tmp_path, folder):
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    (model / folder / "batchstrategy.py").write_text("")
    (model / folder / "batchstrategy.so").touch()

    findings = findings_of(f"{BATCHED}\ndynamic_batching {{}}", directory=model)

    told = {item.severity: item for item in findings if item.code == "VAL-63"}
    assert "must define batcher_initialize" in told[Severity.ERROR].message
    assert "'batchstrategy.so' is not used" in told[Severity.WARNING].message
    assert {item.line for item in told.values()} == {2}
