"""From unpacked paths to a model directory."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from console.repository.arrange import Arrangement, ArrangementError, Wish, arrange


def lay_out(
    *paths: str,
    model: str = "",
    version: str = "",
    stem: str = "",
    config: str = "",
    taken: tuple[int, ...] = (),
) -> Arrangement:
    return arrange(
        [PurePosixPath(path) for path in paths],
        Wish(model, version),
        archive_stem=stem,
        config_text=config,
        taken_versions=lambda name: taken,
    )


def targets(arrangement: Arrangement) -> set[str]:
    return {str(path) for path in arrangement.files}


def test_one_top_folder_is_the_model() -> None:
    result = lay_out("cat/config.pbtxt", "cat/1/model.onnx", "cat/labels.txt", stem="upload")

    assert (result.model, result.versions, result.has_config) == ("cat", [1], True)
    assert targets(result) == {"config.pbtxt", "1/model.onnx", "labels.txt"}


def test_version_folders_at_the_top_take_the_archive_name() -> None:
    result = lay_out("2/model.plan", "10/model.plan", stem="resnet50")

    assert (result.model, result.versions) == ("resnet50", [2, 10])


def test_the_config_names_the_model_when_no_folder_does() -> None:
    result = lay_out("config.pbtxt", "1/model.onnx", config='name: "dog"\n', stem="upload")

    assert result.model == "dog"


def test_what_the_person_typed_wins() -> None:
    assert lay_out("cat/1/model.onnx", model="tiger").model == "tiger"


def test_outer_folders_are_left_out_with_a_note() -> None:
    result = lay_out("export/models/cat/1/model.onnx")

    assert result.model == "cat"
    assert "outer folder" in result.notes[0].message


def test_loose_files_become_a_version() -> None:
    result = lay_out("net.onnx", "net.onnx.data", "labels.txt", "config.pbtxt", stem="net")

    assert targets(result) == {"1/model.onnx", "1/net.onnx.data", "labels.txt", "config.pbtxt"}


def test_a_bare_model_file_gets_its_standard_name_and_the_next_version() -> None:
    result = lay_out("resnet50.onnx", taken=(1, 2))

    assert (result.model, result.versions) == ("resnet50", [3])
    assert targets(result) == {"3/model.onnx"}


@pytest.mark.parametrize(
    ("end", "name"),
    [
        *(("plan", "model.plan"), ("engine", "model.plan"), ("pt", "model.pt"), ("py", "model.py")),
        *(("ubj", "xgboost.ubj"), ("tl", "checkpoint.tl")),
        *(("json", "xgboost.json"), ("txt", "model.txt")),
    ],
)
def test_bare_files_of_each_backend(end: str, name: str) -> None:
    assert targets(lay_out(f"x.{end}", model="m")) == {f"1/{name}"}


def test_a_bare_file_called_model_needs_a_name() -> None:
    with pytest.raises(ArrangementError) as caught:
        lay_out("model.onnx")

    assert caught.value.field == "model"


def test_an_unknown_bare_file_is_refused_with_what_is_known() -> None:
    with pytest.raises(ArrangementError, match=r"\.onnx"):
        lay_out("holiday.jpg", model="m")


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("forest.pkl", "checkpoint.tl with treelite"),
        ("net.safetensors", "weights without their model"),
        ("net.keras", "model.export"),
        ("holiday.jpg", "Upload a .zip"),
    ],
)
def test_a_file_that_no_backend_reads_comes_with_a_way_to_one(name: str, way: str) -> None:
    with pytest.raises(ArrangementError) as caught:
        lay_out(name, model="m")

    assert way in caught.value.hint


def test_next_keeps_the_order_of_several_versions() -> None:
    result = lay_out("m/1/a", "m/4/b", version="next", taken=(7,))

    assert result.versions == [8, 9]
    assert targets(result) == {"8/a", "9/b"}


def test_a_chosen_number_renames_the_only_version() -> None:
    assert lay_out("m/1/a", version="12").versions == [12]


def test_a_chosen_number_for_several_versions_is_refused() -> None:
    with pytest.raises(ArrangementError, match="2 versions"):
        lay_out("m/1/a", "m/2/b", version="3")


def test_several_models_in_one_upload_are_refused() -> None:
    with pytest.raises(ArrangementError, match="side by side"):
        lay_out("a/1/model.onnx", "b/1/model.onnx")


def test_an_ensemble_gets_the_version_folder_that_an_archive_cannot_carry() -> None:
    result = lay_out("ens/config.pbtxt", config='platform: "ensemble"\n')

    assert result.versions == [1]


def test_reserved_folders_are_no_versions() -> None:
    result = lay_out("m/1/model.onnx", "m/warmup/input.bin", "m/initial_state/zeros")

    assert result.versions == [1]
    assert "warmup/input.bin" in targets(result)


@pytest.mark.parametrize("folder", ["v1", "01"])
def test_a_folder_that_is_almost_a_version_is_named(folder: str) -> None:
    result = lay_out("m/config.pbtxt", f"m/{folder}/model.onnx")

    assert result.versions == []
    assert f"'{folder}' is not a version" in result.notes[0].message


@pytest.mark.parametrize("name", ["../x", "a/b", "upload", ".hidden", "a b", "-x", "x" * 129])
def test_names_that_no_model_can_have(name: str) -> None:
    with pytest.raises(ArrangementError) as caught:
        lay_out("m/1/a", model=name)

    assert caught.value.field == "model"
