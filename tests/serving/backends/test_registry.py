"""How backends are found."""

from __future__ import annotations

import pytest

from serving.backends.identity import IdentityBackend
from serving.backends.registry import BackendRegistry
from serving.errors import InvalidArgumentError


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
