"""How backends are found."""

from __future__ import annotations

import pytest

from serving import native_code
from serving.backends.identity import IdentityBackend
from serving.backends.registry import BackendRegistry
from serving.errors import InvalidArgumentError, ServingError, UnsupportedError

CLASS = """from serving.backends.base import Backend
class Own(Backend):
    name = "own"
    def load(self, context): ...
"""


def test_a_backend_is_made_once_and_kept():
    registry = BackendRegistry()

    assert isinstance(registry.get("identity"), IdentityBackend)
    assert registry.get("identity") is registry.get("identity")


def test_an_unknown_backend_is_refused_with_the_places_searched(tmp_path):
    (tmp_path / "fortran").mkdir()

    with pytest.raises(InvalidArgumentError) as caught:
        BackendRegistry(tmp_path).get("fortran")

    assert "unable to find backend library for backend 'fortran'" in caught.value.message
    assert "identity, onnxruntime, openvino, python" in caught.value.message
    files = "libconch_fortran.so or libtriton_fortran.so or conch_fortran.py"
    assert f"there is no {files} in" in caught.value.message


def test_a_model_without_a_backend_is_told_the_choices():
    with pytest.raises(InvalidArgumentError, match="the model names no backend: set `backend`"):
        BackendRegistry().get("")


def test_names_lists_the_built_in_backends():
    assert {"identity", "onnxruntime", "python"} <= set(BackendRegistry().names())


def test_a_name_that_no_file_can_have_is_an_unknown_one(tmp_path):
    with pytest.raises(ServingError, match="it is none of the built-in backends"):
        BackendRegistry(tmp_path).get("a" * 300, version_directory=tmp_path / "1")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        (CLASS.replace("def load(self, context): ...", ""), "TypeError: Can't instantiate"),
        (CLASS + "    def __init__(self): raise ValueError('no')", "ValueError: no"),
        (CLASS + "    def initialize(self, config): raise SystemExit(4)", "SystemExit: 4"),
    ],
)
def test_a_file_whose_backend_cannot_be_made_is_named_with_the_cause(tmp_path, source, reason):
    """A call of sys.exit would end the server."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "conch_own.py").write_text(source)

    with pytest.raises(InvalidArgumentError, match=f"backend 'own' could not be .*{reason}"):
        BackendRegistry(tmp_path).get("own")


def test_a_repository_inside_the_backend_directory_holds_no_code_of_the_operators(tmp_path):
    """BE-010: only <backend-directory>/<name> does, where models may bring none."""
    version = tmp_path / "models" / "m" / "1"
    version.mkdir(parents=True)
    (version / "conch_own.py").write_text(CLASS)
    registry = BackendRegistry(tmp_path, {"": {native_code.KEY: "false"}})

    with pytest.raises(UnsupportedError, match="code of the model's that would run in the server"):
        registry.get("own", version_directory=version)
