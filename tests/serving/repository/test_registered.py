"""Repositories that are registered at run time. REP-069."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from serving.options import ControlMode, ServerOptions
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_identity


def roots(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write_identity(second, "m", extra='name: "m"\n')
    return first, second


async def start(
    *roots: Path, mode: ControlMode = ControlMode.EXPLICIT, **more: bool
) -> ModelServer:
    core = ModelServer(ServerOptions(roots, model_control_mode=mode, **more))  # type: ignore[arg-type]
    await core.start()
    return core


async def test_rep_069_a_registered_repository_serves_under_the_mapped_name(
    tmp_path: Path,
) -> None:
    first, second = roots(tmp_path)
    core = await start(first)
    core.repositories().register(second, {"m": "hash"})

    await core.load_model("hash")

    assert core.model_config("hash").name == "hash"
    assert (await core.infer_async(identity_request("hash"))).model_name == "hash"
    assert [row.name for row in core.repository_index()] == ["hash"]
    with pytest.raises(InvalidArgumentError, match="there is no directory 'm'"):
        await core.load_model("m")
    await core.stop()


async def test_rep_069_what_is_unregistered_loads_no_more_and_serves_on(tmp_path: Path) -> None:
    first, second = roots(tmp_path)
    core = await start(first)
    repositories = core.repositories()
    repositories.register(second, {})
    await core.load_model("m")

    repositories.unregister(second)

    assert (await core.infer_async(identity_request("m"))).error is None
    with pytest.raises(InvalidArgumentError):
        await core.load_model("m")
    with pytest.raises(NotFoundError, match="has not been registered"):
        repositories.unregister(second)
    await core.stop()


async def test_rep_069_only_directories_and_only_once(tmp_path: Path) -> None:
    first, second = roots(tmp_path)
    core = await start(first)
    repositories = core.repositories()
    with pytest.raises(InvalidArgumentError, match="is not a valid directory"):
        repositories.register(tmp_path / "nowhere", {})
    with pytest.raises(AlreadyExistsError, match="has already been registered"):
        repositories.register(first, {})
    repositories.register(second, {})
    with pytest.raises(AlreadyExistsError):
        repositories.register(second, {"m": "n"})
    await core.stop()


async def test_rep_069_needs_explicit_control_and_no_namespaces(tmp_path: Path) -> None:
    first, second = roots(tmp_path)
    core = await start(first, mode=ControlMode.NONE)
    with pytest.raises(UnavailableError, match="--model-control-mode=explicit"):
        core.repositories()
    await core.stop()
    third = tmp_path / "third"
    third.mkdir()
    core = await start(first, third, model_namespacing=True)
    with pytest.raises(UnsupportedError, match="--model-namespacing"):
        core.repositories().register(second, {})
    await core.stop()
