"""What a child process of the core is started with, and how its end is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving import child_program


def test_a_model_sees_the_environment_but_no_setting_of_conch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CONCH_SECRET_KEY", "secret")
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/mine", ""]))
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")

    given = child_program.environment()

    assert "CONCH_SECRET_KEY" not in given
    assert given["HF_HOME"] == "/models"
    assert given["MALLOC_TOP_PAD_"] == "1"
    root, mine = given["PYTHONPATH"].split(os.pathsep)
    assert (Path(root) / "serving" / "__init__.py").is_file()
    assert mine == "/mine"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-11, "was killed by signal SIGSEGV"),
        (-9, "was killed by signal SIGKILL (where nobody sent it, the kernel had run out of"),
        (-200, "was killed by signal number 200"),
    ],
)
def test_an_end_is_told_in_words(code: int, told: str):
    assert child_program.describe_exit(code).startswith(told)
