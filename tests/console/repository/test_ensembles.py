"""An ensemble meets the parts that the repository has when its config is saved or uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.repository import checks, services
from console.repository.errors import RefusedError
from tests.console.repository.packing import CONFIG, write_model

ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 3 ] }
ensemble_scheduling { step {
  model_name: "ident" model_version: -1
  input_map { key: "IN0" value: "INPUT0" }
  output_map { key: "OUT0" value: "OUTPUT0" }
} }
"""


@pytest.fixture
def ensemble(repository: Path) -> Path:
    directory = repository / "both"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(ENSEMBLE)
    return directory


def test_a_config_that_does_not_fit_to_its_part_is_not_saved(
    ensemble: Path, repository: Path, operator: Any
) -> None:
    write_model(repository)
    wrong = ENSEMBLE.replace('key: "OUT0"', 'key: "NOPE"')

    with pytest.raises(RefusedError, match="line 8: .*non-existing output 'NOPE'") as caught:
        services.save_config(actor=operator, model="both", text=wrong)

    assert [row["line"] for row in caught.value.findings if row["severity"] == "error"] == [8]
    assert (ensemble / "config.pbtxt").read_text() == ENSEMBLE


def test_a_config_whose_part_is_not_there_yet_is_saved_with_a_warning(
    ensemble: Path, operator: Any
) -> None:
    services.save_config(actor=operator, model="both", text=ENSEMBLE + "# later\n")

    (row,) = checks.as_rows(checks.check_directory(ensemble))
    assert (row["severity"], row["line"]) == ("warning", 6)
    assert "models that are not available: 'ident'" in row["message"]


def test_a_part_is_told_of_the_ensemble_that_it_would_break(
    ensemble: Path, repository: Path
) -> None:
    part = write_model(repository)
    wider = CONFIG.replace("dims: [ 3 ]", "dims: [ 5 ]")

    assert not [row for row in found(part, CONFIG) if "calls this model" in row["message"]]
    told = [row for row in found(part, wider) if "calls this model" in row["message"]]

    assert {row["severity"] for row in told} == {"warning"}
    assert "ensemble 'both' calls this model and would not load any more" in told[0]["message"]


def found(part: Path, text: str) -> list[dict[str, Any]]:
    return checks.as_rows(checks.check_directory(part, config_text=text))
