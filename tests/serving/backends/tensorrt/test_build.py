"""Engines by the real builder of TensorRT-RTX, which takes no GPU if told what to build for."""

from __future__ import annotations

import sys

import pytest
from onnx import helper

from serving import cuda_library
from serving.backends.tensorrt import cuda_runtime, library
from serving.backends.tensorrt.build import BuildOptions, Progress, build
from serving.backends.tensorrt.signature import complete
from serving.config.plan_header import parse_header
from serving.config.protobuf import pb
from serving.errors import (
    CancelledError,
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    UnavailableError,
)
from tests.serving.backends import onnx_files
from tests.serving.backends.onnx_files import FLOAT, value

ROWS = ((1, 4), (2, 4), (8, 4))


def options(*profiles: dict, **more) -> BuildOptions:
    more.setdefault("capabilities", ("8.6",))
    return BuildOptions("tensorrt_rtx", profiles=profiles, **more)


def silent(phase: str, fraction: float) -> None:
    pass


def test_what_is_built_says_its_inputs_outputs_and_profiles(add_sub):
    """TRT-04: as the engine will say them when it is loaded; AUT-04 completes the config."""
    config = pb.ModelConfig(name="m")
    complete(config, add_sub.signature)

    assert [item.name for item in config.input] == ["A", "B"]
    assert [item.name for item in config.output] == ["SUM", "DIFFERENCE"]
    assert config.max_batch_size == 16
    assert [str(item.shapes["A"]) for item in add_sub.signature.profiles] == [
        "[1 to 4, 4]",
        "[4 to 16, 4]",
    ]


def test_progress_rises_from_nothing_to_all(tmp_path):
    onnx = onnx_files.write_identity(tmp_path)
    told: list[tuple[str, float]] = []
    build(onnx, options({"X": ROWS}), Progress(lambda *row: told.append(row)))

    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert len(set(fractions)) > 10
    assert "Building engine" in {phase for phase, _ in told}


def test_a_build_can_be_cancelled_on_the_way(tmp_path):
    onnx = onnx_files.write_identity(tmp_path)
    told: list[str] = []
    progress = Progress(lambda phase, fraction: told.append(phase), lambda: len(told) > 5)
    with pytest.raises(CancelledError, match="cancelled"):
        build(onnx, options({"X": ROWS}), progress)


def test_an_engine_may_be_for_several_gpus(tmp_path):
    """TRT-01."""
    onnx = onnx_files.write_identity(tmp_path)
    plan = bytes(
        build(onnx, options({"X": ROWS}, capabilities=("8.9", "12.0")), Progress(silent)).plan
    )
    assert parse_header(plan, len(plan), "p").capabilities == ((8, 9), (12, 0))


def test_shape_tensors_take_values_instead_of_shapes(tmp_path):
    onnx = onnx_files.write(
        tmp_path,
        [value("X", FLOAT, ["n"]), value("S", onnx_files.TensorProto.INT64, [2])],
        [value("Y", FLOAT, ["a", "b"])],
        [helper.make_node("Reshape", ["X", "S"], ["Y"])],
    )
    ranges = {"X": ((1,), (6,), (12,)), "S": ((1, 1), (2, 3), (6, 6))}
    signature = build(onnx, options(ranges), Progress(silent)).signature
    (profile,) = signature.profiles
    assert signature.inputs[1].is_shape_tensor
    assert str(profile.values["S"]) == "[1 to 6, 1 to 6]"


def test_a_bf16_model_stays_bf16(tmp_path):
    """TRT-04."""
    onnx = onnx_files.write_identity(tmp_path, onnx_files.BF16, (2, 4))
    signature = build(onnx, options(), Progress(silent)).signature
    assert [item.type_name for item in signature.tensors] == ["BF16", "BF16"]


REFUSED = [
    (options(), "input X may have many shapes: give a profile"),
    (options({"Z": ROWS}), "profile 0 names 'Z', but the inputs are X"),
    (options({"X": ROWS}, {}), "profile 1 says nothing of input 'X'"),
    (options({"X": ((1, 4), (2, 4), (8,))}), "the three shapes have 2, 2 and 1 dimensions"),
    (options({"X": ((-1, 4), (2, 4), (8, 4))}), "every dimension must be 0 to"),
    (options({"X": ((4, 4), (2, 4), (8, 4))}), "must not fall from smallest to largest"),
    (options({"X": ((1, 5), (2, 5), (8, 5))}), "does not fit the model's shape [-1, 4]"),
    (options({"X": ROWS}, precision="fp64"), "must be one of model, fp32, fp16, bf16, int8"),
    (options({"X": ROWS}, precision="fp16"), "export the model in fp16"),
    (options({"X": ROWS}, is_version_compatible=True), "builds no version compatible engines"),
    (options({"X": ROWS}, capabilities=("9.0",)), "'9.0': it knows 7.5, 8.0, 8.6, 8.9, 12.0"),
]


@pytest.mark.parametrize(("wanted", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_built_is_refused_in_one_sentence(tmp_path, wanted, words):
    onnx = onnx_files.write_identity(tmp_path)
    with pytest.raises(InvalidArgumentError) as caught:
        build(onnx, wanted, Progress(silent))
    assert words in caught.value.message


def test_an_operator_that_tensorrt_lacks_is_named(tmp_path):
    onnx = onnx_files.write(
        tmp_path,
        [value("X", FLOAT, [4])],
        [value("Y", FLOAT, [4])],
        [helper.make_node("Wiggle", ["X"], ["Y"], name="w1")],
    )
    with pytest.raises(ModelLoadError) as caught:
        build(onnx, options(), Progress(silent))
    assert caught.value.message == (
        "model.onnx cannot become an engine: operator Wiggle 'w1': Plugin not found, are the "
        "plugin name, version, and namespace correct? (INVALID_NODE)"
    )
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("content", [b"junk", b"\0\1garbage" * 30])
def test_a_file_that_is_no_onnx_model_is_named(tmp_path, content):
    onnx = tmp_path / "model.onnx"
    onnx.write_bytes(content)
    with pytest.raises(ModelLoadError, match="model.onnx cannot become an engine"):
        build(onnx, options(), Progress(silent))


def test_building_for_the_gpu_that_is_there_takes_one(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_runtime, "_driver", None)
    monkeypatch.setattr(cuda_library, "LIBRARY", "libcuda_that_is_not_there.so.1")
    onnx = onnx_files.write_identity(tmp_path)
    with pytest.raises(UnavailableError, match="or say the compute capability to build for, which"):
        build(onnx, options({"X": ROWS}, capabilities=()), Progress(silent))


def test_tensorrt_itself_is_asked_for_by_its_own_command(tmp_path):
    with pytest.raises(ServingError, match=r"pip install 'conch\[tensorrt\]'"):
        build(tmp_path / "model.onnx", BuildOptions("tensorrt"), Progress(silent))


def test_without_a_choice_what_is_installed_builds(tmp_path, monkeypatch):
    """TensorRT first; both missing, both commands are told."""
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    library.library.cache_clear()
    onnx = onnx_files.write_identity(tmp_path)
    any_library = BuildOptions(profiles=[{"X": ROWS}], capabilities=("8.6",))
    assert build(onnx, any_library, Progress(silent)).library == "tensorrt_rtx"

    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    library.library.cache_clear()
    with pytest.raises(UnavailableError, match=r"conch\[tensorrt\].*conch\[tensorrt-rtx\]"):
        build(onnx, any_library, Progress(silent))
