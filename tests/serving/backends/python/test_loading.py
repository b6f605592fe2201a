"""Python models that cannot be loaded: the error names the file, the line and the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import ServingError
from tests.serving.instance.python_models import (
    CONFIG,
    IDENTITY,
    ask_one,
    context_for,
    hosted,
    output,
)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (None, ["unable to find 'm/1/model.py'", "default_model_filename"]),
        ("x = 1\n", ["'m/1/model.py' defines no class TritonPythonModel"]),
        ("TritonPythonModel = 5\n", ["defines no class TritonPythonModel"]),
        ("class TritonPythonModel:\n    pass\n", ["has no method execute"]),
        (
            "class TritonPythonModel:\n    def execute(self)\n        pass\n",
            ["'m/1/model.py', line 2: SyntaxError: expected ':'", "def execute(self)"],
        ),
        (
            "\n\nimport no_such_module\n",
            [
                "importing 'm/1/model.py' failed: ModuleNotFoundError: No module named "
                "'no_such_module'",
                "1/model.py(3): <module>",
            ],
        ),
        ("1 / 0\n", ["ZeroDivisionError: division by zero", "1/model.py(1): <module>"]),
        (
            IDENTITY + "\n    def initialize(self, args):\n        raise KeyError(args['no'])\n",
            ["model 'm': initialize failed: KeyError: 'no'", "1/model.py(14): initialize"],
        ),
        (
            IDENTITY + "\n    def __init__(self):\n        raise ValueError('early')\n",
            ["TritonPythonModel() failed: ValueError: early"],
        ),
    ],
)
async def test_the_error_says_where_and_why(tmp_path: Path, source: str | None, told: list[str]):
    with pytest.raises(ServingError) as caught:
        async with hosted(context_for(tmp_path, source)):
            pass

    for part in told:
        assert part in caught.value.message
    assert str(tmp_path) not in caught.value.message


async def test_a_syntax_error_in_a_file_beside_the_model_names_that_file(tmp_path: Path):
    context = context_for(tmp_path, "import near\n" + IDENTITY, others={"near.py": "def f(:\n"})

    with pytest.raises(ServingError, match=r"'m/1/near\.py', line 1: SyntaxError"):
        async with hosted(context):
            pass


async def test_another_file_name_can_be_configured(tmp_path: Path):
    config = CONFIG + 'default_model_filename: "other.py"'

    async with hosted(context_for(tmp_path, IDENTITY, config, filename="other.py")) as host:
        assert output(await ask_one(host)).tolist() == [0]


async def test_a_file_name_without_py_is_refused(tmp_path: Path):
    config = CONFIG + 'default_model_filename: "model.onnx"'

    with pytest.raises(ServingError, match=r"'model\.onnx' does not end in \.py"):
        async with hosted(context_for(tmp_path, IDENTITY, config, filename="model.onnx")):
            pass
