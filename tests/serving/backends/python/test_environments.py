"""Models with an environment of their own, and backends written in Python (PB-060, PB-061, BE-010).

A wheel made here stands for what a model would install; nothing is fetched.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from serving.backends.base import Placement
from serving.clock import LoopClock
from serving.config.decode import InstanceKind
from serving.errors import ServingError
from serving.instance.process import ProcessHost
from serving.services import ModelServices
from tests.serving.backends.python.serving_models import (
    FP32,
    ask_server,
    served,
    source_of,
    write_model,
)
from tests.serving.backends.python.writing import model
from tests.serving.instance.python_models import BACKEND, ask_one, context_for
from tests.waiting import wait_until

USES = "import own_package\nreturn [array_ok(np.array([own_package.VALUE], np.float32))]"


def write_wheel(directory: Path, value: int) -> str:
    """A wheel with one module; its file name."""
    name = "own_package-1.0-py3-none-any.whl"
    info = "own_package-1.0.dist-info"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / name, "w") as wheel:
        wheel.writestr("own_package.py", f"VALUE = {value}\n")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return name


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the package, value 3."""
    directory = tmp_path_factory.mktemp("venv") / "e"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (site,) = directory.glob("lib/python*/site-packages")
    (site / "own_package.py").write_text("VALUE = 3\n")
    return directory


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"backend_config": {"python": {"environment-directory": str(tmp_path / "cache")}}} | more


def parameter(value: object) -> str:
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{value}" }} }}'


async def test_pb_060_a_virtual_environment_runs_the_model(tmp_path: Path, venv: Path):
    body = USES.replace("return", "import sys; assert sys.prefix == PREFIX, sys.prefix\nreturn")
    source = source_of(body) + f"\nPREFIX = {str(venv)!r}\n"
    models = {"m": (source, parameter(venv))}
    async with served(tmp_path / "models", models, **options(tmp_path)) as server:
        assert await ask_server(server, "m") == [3.0]


async def test_pb_060_the_models_own_directory_may_hold_the_environment(tmp_path: Path, venv: Path):
    root = tmp_path / "models"
    shutil.copytree(venv, root / "m" / "env", symlinks=True)
    models = {"m": (source_of(USES), parameter("$$TRITON_MODEL_DIRECTORY/env"))}
    async with served(root, models, **options(tmp_path)) as server:
        assert await ask_server(server, "m") == [3.0]


async def test_pb_060_an_archive_is_unpacked_once_for_all_models_and_mended(
    tmp_path: Path, venv: Path
):
    packed = tmp_path / "packed"
    shutil.copytree(venv, packed, symlinks=True)
    (packed / "bin" / "conda-unpack").write_text(
        "import pathlib\npathlib.Path('mended').write_text('x' * (1 + 0))\n"
    )
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(packed, ".")
    models = {name: (source_of(USES), parameter(archive)) for name in ("a", "b", "c")}
    async with served(tmp_path / "models", models, **options(tmp_path)) as server:
        for name in models:
            assert await ask_server(server, name) == [3.0]

    made = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert len(made) == 1
    assert (made[0] / "mended").exists()


async def test_a_load_that_makes_an_environment_shows_that_phase(tmp_path: Path, venv: Path):
    packed = tmp_path / "packed"
    shutil.copytree(venv, packed, symlinks=True)
    (packed / "bin" / "conda-unpack").write_text("import time\ntime.sleep(1)\n")
    archive = tmp_path / "env.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(packed, ".")
    root = tmp_path / "models"
    write_model(root, "m", source_of(USES), parameter(archive))
    async with served(root, {}, load_models=(), **options(tmp_path)) as server:
        loading = asyncio.create_task(server.load_model("m"))
        await wait_until(
            lambda: any("environment" in item.reason for item in server.repository_index())
        )
        await loading
        assert await ask_server(server, "m") == [3.0]


async def test_pb_060_variables_of_the_activation_script_reach_the_model(
    tmp_path: Path, venv: Path
):
    own = tmp_path / "own"
    shutil.copytree(venv, own, symlinks=True)
    with (own / "bin" / "activate").open("a") as script:
        script.write("\nexport OF_THE_ENVIRONMENT=7\n")
    body = "import os\nreturn [ok(float(os.environ['OF_THE_ENVIRONMENT']))]"
    models = {"m": (source_of(body), parameter(own))}
    async with served(tmp_path / "models", models, **options(tmp_path)) as server:
        assert await ask_server(server, "m") == [7.0]


async def test_requirements_beside_the_model_are_installed_once_and_told_as_a_phase(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    root = tmp_path / "models"
    for name in ("a", "b"):
        wheel = write_wheel(root / name, 5)
        (root / name / "requirements.txt").write_text(f"--no-index\n./{wheel}\n")
        shutil.copystat(root / "a" / wheel, root / name / wheel)
    models = {name: source_of(USES) for name in ("a", "b")}
    caplog.set_level("INFO")
    async with served(root, models, **options(tmp_path)) as server:
        assert await ask_server(server, "a") == [5.0]
        assert await ask_server(server, "b") == [5.0]

    assert "installing requirements.txt" in caplog.text
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1


async def test_requirements_that_cannot_be_had_fail_the_load_with_what_pip_says(tmp_path: Path):
    root = tmp_path / "models"
    write_model(root, "m", source_of(USES))
    (root / "m" / "requirements.txt").write_text("--no-index\nnever-published-package\n")
    with pytest.raises(ServingError, match="never-published-package"):
        async with served(root, {}, **options(tmp_path)):
            pass


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("relative/env", "neither an absolute path nor one that starts with"),
        ("/nonexistent/env", "there is nothing at /nonexistent/env"),
        ("$$TRITON_MODEL_DIRECTORY/1", "has no bin/python"),
        ("$$TRITON_MODEL_DIRECTORY/1/model.py", "cannot be unpacked"),
    ],
)
async def test_pb_060_what_is_no_environment_fails_the_load_with_the_reason(
    tmp_path: Path, path: str, told: str
):
    models = {"m": (source_of(USES), parameter(path))}
    with pytest.raises(ServingError, match=told):
        async with served(tmp_path / "models", models, **options(tmp_path)):
            pass


async def test_pb_061_an_interpreter_that_cannot_run_the_core_says_what_is_missing(
    tmp_path: Path,
):
    for version, told in (("[3, 9]", "3.11 or newer"), ("[9, 1]", "install numpy, msgspec there")):
        python = tmp_path / version / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"""#!/bin/sh\necho '[{version}, ["numpy", "msgspec"]]'\n""")
        python.chmod(0o755)
        models = {"m": (source_of(USES), parameter(tmp_path / version))}
        with pytest.raises(ServingError, match=told):
            async with served(tmp_path / "models", models, **options(tmp_path)):
                pass


FACTORY = """
import json, os, helper
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    @staticmethod
    def get_backend_attributes():
        cpu = {"kind": "KIND_CPU", "count": 3}
        return {"preferred_instance_groups": [{"kind": "KIND_GPU"}, cpu]}

    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "model.json")) as file:
            self.factor = json.load(file)["factor"]

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", helper.times(r.inputs()[0].as_numpy(), self.factor))]
            )
            for r in requests
        ]
"""


def write_backend(directory: Path) -> Path:
    (directory / "factory").mkdir(parents=True)
    (directory / "factory" / "model.py").write_text(FACTORY)
    (directory / "factory" / "helper.py").write_text(
        "import numpy as np\n\ndef times(a, b):\n    return (a * b).astype(np.float32)\n"
    )
    return directory


def write_factory_model(root: Path, name: str, factor: int) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text('backend: "factory"')
    (root / name / "1" / "model.json").write_text(f'{{"factor": {factor}}}')


async def test_be_010_one_folder_of_the_backend_directory_serves_many_models(tmp_path: Path):
    backends = write_backend(tmp_path / "backends")
    root = tmp_path / "models"
    write_factory_model(root, "twice", 2)
    write_factory_model(root, "thrice", 3)
    async with served(root, {}, **options(tmp_path, backend_directory=backends)) as server:
        assert await ask_server(server, "twice", 5.0) == [10.0]
        assert await ask_server(server, "thrice", 5.0) == [15.0]
        assert server.model_config("twice").backend == "factory"


async def test_be_010_its_attributes_say_how_many_instances_where_the_config_does_not(
    tmp_path: Path,
):
    backends = write_backend(tmp_path / "backends")
    root = tmp_path / "models"
    write_factory_model(root, "m", 2)
    write_factory_model(root, "one", 2)
    with (root / "one" / "config.pbtxt").open("a") as config:
        config.write("\ninstance_group [{ kind: KIND_CPU count: 1 }]")
    async with served(root, {}, **options(tmp_path, backend_directory=backends)) as server:
        assert server.model("m").instance_count == 3
        assert server.model("one").instance_count == 1


async def test_be_010_an_archive_beside_the_backend_is_its_environment(tmp_path: Path, venv: Path):
    backends = tmp_path / "backends"
    (backends / "uses").mkdir(parents=True)
    (backends / "uses" / "model.py").write_text(source_of(USES))
    with tarfile.open(backends / "uses" / "pb_exec_env_model.py.tar.gz", "w:gz") as tar:
        tar.add(venv, ".")
    root = tmp_path / "models"
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "config.pbtxt").write_text(f'backend: "uses" {FP32}')
    async with served(root, {}, **options(tmp_path, backend_directory=backends)) as server:
        assert await ask_server(server, "m") == [3.0]


async def test_a_load_waits_for_the_one_that_builds_the_same_environment(
    tmp_path: Path, venv: Path
):
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(venv, ".")
    models = {name: (source_of(USES), parameter(archive)) for name in ("a", "b")}
    roots = [tmp_path / "one", tmp_path / "two"]

    async def serve(root: Path) -> list[float]:
        async with served(root, models, **options(tmp_path)) as server:
            return [float((await ask_server(server, name))[0]) for name in models]

    assert await asyncio.gather(*map(serve, roots)) == [[3.0, 3.0], [3.0, 3.0]]


async def test_a_gpu_instance_sees_its_own_device_only(tmp_path: Path):
    body = """
import os
told = [os.environ.get(n) for n in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")]
error = pb_utils.TritonError(f"{told} {self.arguments['model_instance_device_id']}")
return [pb_utils.InferenceResponse(error=error)]
"""
    extra = "    def initialize(self, args):\n        self.arguments = args"
    context = context_for(tmp_path, model(body, extra))
    placement = Placement("m_0_0", InstanceKind.GPU, 3)
    host = ProcessHost(
        context, BACKEND, placement, services=ModelServices(LoopClock(asyncio.get_running_loop()))
    )
    await host.start()
    try:
        response = await ask_one(host)
    finally:
        await host.stop()

    assert response.error is not None
    assert response.error.message == "['PCI_BUS_ID', '3'] 0"
