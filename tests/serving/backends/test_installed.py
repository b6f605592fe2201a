"""Which backends there are and what is installed, told without importing a runtime (BE-012)."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from serving import backends_command
from serving.backends import installed
from serving.backends.registry import BUILT_IN, BackendRegistry

SHIPPED = (
    *("tensorrt", "onnxruntime", "tensorflow", "pytorch", "openvino", "python", "dali", "fil"),
    *("tensorrtllm", "vllm", "identity", "square", "repeat"),
)


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Packages that are installed, as far as this test goes."""
    found: dict[str, str] = {}

    def version(package: str) -> str:
        if package not in found:
            raise metadata.PackageNotFoundError(package)
        return found[package]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(installed, "_has_module", lambda module: False)
    installed._versions.cache_clear()
    installed.warn_once.cache_clear()
    yield found
    installed._versions.cache_clear()
    installed.warn_once.cache_clear()


def described(name: str) -> installed.InstalledBackend:
    return next(item for item in installed.describe(BackendRegistry()) if item.name == name)


def test_be_012_the_set_that_triton_ships_is_there():
    assert set(SHIPPED) <= BUILT_IN.keys()


def test_a_runtime_is_told_with_its_version_and_devices(versions):
    versions["onnxruntime"] = "1.32.0"

    found = described("onnxruntime")

    assert (found.package, found.version, found.origin) == ("onnxruntime", "1.32.0", "built in")
    assert "CPU" in found.devices
    assert not found.problem
    assert not found.install


def test_a_missing_runtime_comes_with_the_command_that_brings_it(versions):
    found = described("pytorch")

    assert not found.package
    assert found.problem == "its package 'torch' is missing"
    assert found.install == "pip install 'conch[pytorch]'"


def test_a_backend_without_a_runtime_lacks_nothing(versions):
    assert not described("identity").install


def test_two_onnxruntime_packages_that_share_a_folder_are_told_at_the_start(versions, caplog):
    versions.update({"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"})

    installed.warn_once()

    text = "onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 are installed together"
    assert text in caplog.text
    assert "pip uninstall onnxruntime onnxruntime-gpu" in caplog.text
    assert text in described("onnxruntime").problem


def test_backends_of_the_directory_and_of_models_are_told_with_their_place(tmp_path: Path):
    for name, file in (("near", "conch_near.py"), ("based", "model.py")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("")
    registry = BackendRegistry(tmp_path)
    registry.get("identity")
    model = tmp_path / "models" / "m" / "1" / "conch_own.py"
    model.parent.mkdir(parents=True)
    model.write_text(
        "from serving.backends.base import Backend\n"
        "class Own(Backend):\n    name = 'own'\n    def load(self, context):\n        ...\n"
    )
    registry.get("own", version_directory=model.parent)

    found = {item.name: (item.origin, item.location) for item in installed.describe(registry)}

    assert found["near"] == ("backend directory", str(tmp_path / "near" / "conch_near.py"))
    assert found["based"] == ("backend directory", str(tmp_path / "based"))
    assert found["own"] == ("model folder", str(model))
    assert found["identity"][0] == "built in"


def test_a_library_for_another_server_leaves_what_is_built_in(tmp_path: Path):
    """As when --backend-directory is that of a Triton."""
    for name in ("identity", "unheard"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"libtriton_{name}.so").write_bytes(b"\x7fELF TRITONBACKEND_")

    found = {item.name: item.origin for item in installed.describe(BackendRegistry(tmp_path))}

    assert found["identity"] == "built in"
    assert "unheard" not in found


def test_the_command_lists_backends_as_a_table_and_as_json(versions, capsys):
    versions["treelite"] = "4.8.1"

    assert backends_command.main([]) == 0
    table = capsys.readouterr().out
    assert backends_command.main(["--json"]) == 0
    rows = {item["name"]: item for item in json.loads(capsys.readouterr().out)}

    assert "fil                 treelite 4.8.1" in table
    assert "vllm: its package 'vllm' is missing: pip install 'conch[vllm]'" in table
    assert rows["fil"]["version"] == "4.8.1"


def test_nothing_that_runs_models_is_imported_to_tell_what_is_installed():
    heavy = ("onnxruntime", "torch", "openvino", "treelite", "tensorrt", "tensorflow")
    code = (
        "import sys\nfrom serving.__main__ import main\nmain(['backends'])\n"
        f"assert not [name for name in {heavy!r} if name in sys.modules]"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
