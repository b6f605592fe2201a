"""--model-config-name (REP-009): configs/<name>.pbtxt in place of config.pbtxt."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving import cli
from serving.errors import ModelLoadError
from serving.options import ControlMode
from tests.serving.model_files import IDENTITY, write_identity
from tests.waiting import wait_until


def write_variant(model: Path, name: str, max_batch_size: int) -> Path:
    path = model / "configs" / f"{name}.pbtxt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(IDENTITY.replace("8", str(max_batch_size)))
    return path


async def test_rep_009_models_with_the_variant_take_it_and_the_others_keep_config_pbtxt(
    serve, tmp_path
):
    write_variant(write_identity(tmp_path, "with"), "large", 64)
    write_variant(write_identity(tmp_path, "without"), "small", 2)
    server = await serve(model_config_name="large")

    await server.load_model("with")
    await server.load_model("without")

    assert server.model_config("with").max_batch_size == 64
    assert server.model_config("without").max_batch_size == 8


async def test_rep_009_load_notices_that_the_variant_came_and_went(serve, tmp_path):
    model = write_identity(tmp_path, "m")
    server = await serve(model_config_name="large")
    await server.load_model("m")
    assert server.model_config("m").max_batch_size == 8

    path = write_variant(model, "large", 64)
    await server.load_model("m")
    assert server.model_config("m").max_batch_size == 64

    path.unlink()
    await server.load_model("m")
    assert server.model_config("m").max_batch_size == 8


async def test_rep_009_poll_notices_that_the_variant_came_and_went(serve, tmp_path):
    model = write_identity(tmp_path, "m")
    server = await serve(
        model_config_name="large", model_control_mode=ControlMode.POLL, repository_poll_secs=0.05
    )

    path = write_variant(model, "large", 64)
    await wait_until(lambda: server.model_config("m").max_batch_size == 64)
    path.unlink()
    await wait_until(lambda: server.model_config("m").max_batch_size == 8)


async def test_rep_009_mistakes_of_the_variant_are_told_under_its_own_path(serve, tmp_path):
    write_variant(write_identity(tmp_path, "m"), "bad", 8).write_text("max_batch_sise: 1")
    server = await serve(model_config_name="bad")

    with pytest.raises(ModelLoadError, match=r"configs/bad\.pbtxt:1:1"):
        await server.load_model("m")


def test_rep_009_name_on_the_command_line():
    line = cli.parse(["--model-repository=/m", "--model-config-name=large"])
    assert line is not None
    assert line.server.model_config_name == "large"


@pytest.mark.parametrize("name", ["", "two words", "../up"])
def test_rep_009_name_with_spaces_or_a_path_is_refused(name):
    with pytest.raises(cli.CommandLineError, match="--model-config-name"):
        cli.parse(["--model-repository=/m", f"--model-config-name={name}"])
