"""From files to a Model, step by step, with the built-in identity backend."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.errors import InvalidArgumentError, ServingError
from serving.repository.load_threads import LoadThreads
from serving.repository.loader import ModelLoader
from serving.repository.source import LoadRequest, Source
from serving.repository.storage import stamp_model
from serving.services import ModelServices
from tests.serving.model_files import write_identity


def source(directory: Path, **request: object) -> Source:
    return Source(directory.name, directory, stamp_model(directory), LoadRequest(**request))  # type: ignore[arg-type]


@pytest.fixture
async def loader() -> ModelLoader:
    return ModelLoader(
        BackendRegistry(None, {"": {"all": "1", "own": "0"}, "identity": {"own": "2"}}),
        ModelServices(LoopClock(asyncio.get_running_loop())),
    )


async def test_config_is_completed_and_backend_settings_are_merged(loader, tmp_path):
    prepared = loader.prepare(source(write_identity(tmp_path, "m")))
    assert list(prepared.versions) == [1]

    model = await loader.load_version(prepared, 1, LoadThreads())

    assert (model.name, model.version, model.spec.name) == ("m", 1, "m")
    assert model.config.instance_group[0].count == 1
    assert model.config.version_policy.latest.num_versions == 1
    context, _ = loader._complete(prepared, 1, lambda: None)
    assert {"all": "1", "own": "2"}.items() <= context.backend_config.items()
    await model.drain_and_close()


async def test_every_mistake_of_a_config_is_told_with_its_line(loader, tmp_path):
    model = write_identity(tmp_path, "m", extra="max_batch_sise: 3\nfoo { }\n")
    with pytest.raises(InvalidArgumentError) as caught:
        loader.prepare(source(model))
    assert "config.pbtxt:5:1" in caught.value.message
    assert "config.pbtxt:6:1" in caught.value.message


async def test_many_mistakes_are_counted_not_listed(loader, tmp_path):
    model = write_identity(tmp_path, "m", extra="wrong: 1\n" * 20)
    with pytest.raises(InvalidArgumentError, match="and [0-9]+ more$"):
        loader.prepare(source(model))


async def test_version_that_is_asked_for_and_absent_is_named(loader, tmp_path):
    model = write_identity(tmp_path, "m", versions=(1, 2))
    assert loader.prepare(source(model, versions=frozenset({2, 1}))).versions == [1, 2]
    with pytest.raises(InvalidArgumentError, match="asked for version 7, but .* has 1, 2"):
        loader.prepare(source(model, versions=frozenset({1, 7})))
    with pytest.raises(InvalidArgumentError, match="asked for version none"):
        loader.prepare(source(model, versions=frozenset()))


async def test_config_that_cannot_be_read_says_so(loader, tmp_path):
    model = write_identity(tmp_path, "m")
    (model / "config.pbtxt").unlink()
    (model / "config.pbtxt").mkdir()
    with pytest.raises(InvalidArgumentError, match=r"config.pbtxt cannot be read: "):
        loader.prepare(source(model))
    os.rmdir(model / "config.pbtxt")
    (model / "config.pbtxt").write_bytes(b'backend: "\xff"')
    with pytest.raises(InvalidArgumentError, match=r"config.pbtxt:1:11: byte 0xff is not UTF-8"):
        loader.prepare(source(model))


async def test_a_config_that_is_a_dangling_link_is_no_absent_one(loader, tmp_path):
    model = write_identity(tmp_path, "m")
    (model / "config.pbtxt").unlink()
    (model / "config.pbtxt").symlink_to("nowhere.pbtxt")

    with pytest.raises(InvalidArgumentError, match="config.pbtxt cannot be read"):
        loader.prepare(source(model))


async def test_a_link_that_leads_in_a_circle_hides_no_version(loader, tmp_path):
    model = write_identity(tmp_path, "m")
    (model / "one").symlink_to("two")
    (model / "two").symlink_to("one")

    assert list(loader.prepare(source(model)).versions) == [1]


async def test_model_without_config_and_without_model_file_names_no_backend(loader, tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    prepared = loader.prepare(source(tmp_path / "m"))
    with pytest.raises(ServingError, match="the model names no backend"):
        await loader.load_version(prepared, 1, LoadThreads())


async def test_mistakes_of_an_ensemble_by_itself_are_told_before_its_parts_are_loaded(
    loader, tmp_path
):
    model = write_identity(tmp_path, "e")
    (model / "config.pbtxt").write_text(
        """
        platform: "ensemble"
        input { name: "A" data_type: TYPE_FP32 dims: 4 }
        output { name: "B" data_type: TYPE_FP32 dims: 4 }
        ensemble_scheduling { step {
          model_name: "m" model_version: -1
          input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "C" }
        } }
        """
    )
    with pytest.raises(InvalidArgumentError, match="output 'B' is not written by any step"):
        loader.prepare(source(model))


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"nope": 1}', '{"input": [{"dtype": "x"}]}'])
async def test_config_override_that_is_no_config_is_refused(loader, tmp_path, text):
    with pytest.raises(InvalidArgumentError):
        loader.prepare(source(write_identity(tmp_path, "m"), config=text))
