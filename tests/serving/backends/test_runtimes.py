"""What a caller is told where a backend's runtime cannot be imported."""

from __future__ import annotations

import sys

import pytest

from serving.backends.runtimes import require
from serving.errors import UnavailableError

INSTALL = "pip install 'conch[some]'"


def test_a_missing_runtime_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "json", None)

    with pytest.raises(UnavailableError, match=r"the some backend cannot be used.*conch\[some\]"):
        require("json", backend="some", install=INSTALL)
    with pytest.raises(UnavailableError, match="'no_such_runtime' is missing"):
        require("no_such_runtime", backend="some", install=INSTALL)


def test_a_runtime_that_breaks_at_import_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken_runtime.py").write_text("import library_of_no_one\n")
    (tmp_path / "driverless.py").write_text("raise OSError('libcuda.so.1: cannot open')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(UnavailableError, match=r"could not be imported.*library_of_no_one"):
        require("broken_runtime", backend="some", install=INSTALL)
    with pytest.raises(UnavailableError, match=r"could not be imported: libcuda\.so\.1"):
        require("driverless", backend="some", install=INSTALL)


def test_a_runtime_that_is_there_is_imported():
    assert require("json", backend="some", install=INSTALL).loads("1") == 1


def test_a_runtime_inside_a_shared_folder_is_named_in_full(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia", None)
    monkeypatch.delitem(sys.modules, "nvidia.dali", raising=False)  # another test has imported it

    with pytest.raises(UnavailableError, match=r"its package 'nvidia\.dali' is missing"):
        require("nvidia.dali", backend="dali", install="pip install it")
