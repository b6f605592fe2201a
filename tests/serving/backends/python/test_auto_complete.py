"""A model's auto_complete_config: what it may set, and how it fails a load."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.backends.base import ModelContext
from serving.backends.python.auto_complete import complete_in_child
from serving.backends.python.backend import PythonBackend
from serving.backends.python.model_file import may_have_hook
from serving.errors import ModelLoadError
from tests.serving.instance.python_models import IDENTITY, context_for

FILE = 'name: "m" backend: "python"'
SOME = """c.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [4]})
c.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]})"""


def completing(body: str, last: str = "return c") -> str:
    lines = "".join(f"        {line}\n" for line in [*body.splitlines(), last])
    return f"{IDENTITY}\n    @staticmethod\n    def auto_complete_config(c):\n{lines}"


def completed(directory: Path, source: str, config: str = FILE) -> ModelContext:
    context = context_for(directory, source, config)
    PythonBackend().auto_complete(context)
    return context


def test_an_empty_config_is_filled(tmp_path: Path):
    body = f"c.set_max_batch_size(4)\nc.set_dynamic_batching()\n{SOME}"

    config = completed(tmp_path, completing(body)).config

    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert [(item.name, item.data_type, list(item.dims)) for item in config.input] == [
        ("IN", 11, [4])
    ]
    assert [item.name for item in config.output] == ["OUT"]


def test_a_model_without_the_hook_keeps_its_config(tmp_path: Path):
    context = completed(tmp_path, IDENTITY, FILE + " max_batch_size: 3")

    assert context.config.max_batch_size == 3


def test_what_the_file_leaves_out_of_a_tensor_is_filled(tmp_path: Path):
    config = completed(tmp_path, completing(SOME), FILE + ' input { name: "IN" }').config

    assert len(config.input) == 1
    assert list(config.input[0].dims) == [4]


def test_an_optional_input_and_the_decoupled_policy_are_kept(tmp_path: Path):
    body = SOME.replace("[4]})\nc.add_output", "[4], 'optional': True})\nc.add_output")
    body += "\nc.set_model_transaction_policy({'decoupled': True})"

    config = completed(tmp_path, completing(body)).config

    assert config.input[0].optional
    assert config.model_transaction_policy.decoupled


@pytest.mark.parametrize(
    ("body", "config", "told"),
    [
        ("c.set_max_batch_size(2)", "max_batch_size: 4", "specified max_batch_size 4, but"),
        ("c.set_dynamic_batching()", "sequence_batching { }", "as 'sequence_batching'"),
        (SOME, 'input { name: "IN" data_type: TYPE_INT32 }', "specified data_type TYPE_INT32"),
        (SOME, 'input { name: "IN" dims: [5] }', "specified dims [5] for input 'IN'"),
        ("c.add_input({'name': 'IN'})", "", "is missing 'data_type' property"),
        ("c.add_input({'data_type': 'TYPE_FP32'})", "", "is missing 'name' property"),
        ("c.add_output({'name': 'OUT', 'optional': True})", "", "property other than"),
        ("c.set_model_transaction_policy({'x': 1})", "", "other than 'decoupled'"),
        ("raise RuntimeError('mine')", "", "RuntimeError: mine"),
        (
            "c.add_input({'name': 'IN', 'data_type': 'TYPE_FP99', 'dims': [1]})",
            "",
            "made a config that is not valid",
        ),
    ],
)
def test_a_contradiction_fails_the_load_with_the_text(
    tmp_path: Path, body: str, config: str, told: str
):
    with pytest.raises(ModelLoadError) as caught:
        completed(tmp_path, completing(body), f"{FILE} {config}")

    assert told in caught.value.message
    assert "'m'" in caught.value.message


def test_the_hook_must_return_the_config(tmp_path: Path):
    with pytest.raises(ModelLoadError, match="found type 'NoneType'"):
        completed(tmp_path, completing(SOME, "return None"))


def test_a_process_that_dies_says_code_and_last_words(tmp_path: Path):
    body = "import os, sys\nprint('no disk', file=sys.stderr)\nos._exit(9)"

    with pytest.raises(ModelLoadError, match=r"exited with code 9: no disk"):
        completed(tmp_path, completing(body))


def test_a_hook_that_hangs_ends_at_the_deadline(tmp_path: Path):
    context = context_for(tmp_path, completing("import time\ntime.sleep(60)"), FILE)

    with pytest.raises(ModelLoadError, match=r"did not return within 0\.7 s"):
        complete_in_child(context, timeout_s=0.7)


def test_a_model_that_cannot_be_imported_says_why(tmp_path: Path):
    with pytest.raises(ModelLoadError, match="No module named 'nothing_here'"):
        completed(tmp_path, "import nothing_here")


def test_a_missing_file_is_found_without_a_process(tmp_path: Path):
    with pytest.raises(ModelLoadError, match=r"unable to find 'm/1/model\.py'"):
        PythonBackend().auto_complete(context_for(tmp_path, None, FILE))


def test_what_the_hook_prints_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "serving.models")

    completed(tmp_path, completing(f"print('looking')\n{SOME}"))

    assert "m auto_complete_config: looking" in caplog.text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class TritonPythonModel:\n    def execute(self): ...\n", False),
        ("class TritonPythonModel(Base): ...\n", True),
        ("@decorated\nclass TritonPythonModel: ...\n", True),
        ("from elsewhere import TritonPythonModel\n", True),
        ("class TritonPythonModel:\n    def auto_complete_config(c): ...\n", True),
        ("this is no Python", True),
        ("", True),
    ],
)
def test_a_process_is_spared_only_where_the_source_shows_that_there_is_no_hook(
    tmp_path: Path, source: str, expected: bool
):
    path = tmp_path / "model.py"
    path.write_text(source)

    assert may_have_hook(path, "auto_complete_config") is expected
