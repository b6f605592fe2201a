"""Engine files before they are deserialized: whose, for what version, for what device (TRT-01)."""

from __future__ import annotations

import pytest

from serving.config.check import ModelCheck, check_model
from serving.config.plan_header import (
    PlanHeader,
    check_capability,
    check_library,
    check_version,
    parse_header,
    read_header,
    validity_words,
)
from serving.errors import InvalidArgumentError, ModelLoadError
from tests.serving.backends.tensorrt.plans import TENSORRT_PLAN, header_bytes

RTX = PlanHeader("tensorrt_rtx", (1, 7, 1, 116), ((8, 6), (8, 9)))
TENSORRT = PlanHeader("tensorrt", (11, 4, 0, 106))


def test_a_real_engine_tells_its_builder_and_its_devices(add_sub, tmp_path):
    """What the builder was told is what the header says."""
    path = tmp_path / "1" / "model.plan"
    path.parent.mkdir()
    path.write_bytes(add_sub.plan)

    header = read_header(path)

    assert header.product == "TensorRT-RTX"
    assert ".".join(map(str, header.version)) == add_sub.version
    assert header.capabilities == ((8, 6),)


def test_the_check_of_a_directory_shows_who_built_the_engine(add_sub, tmp_path):
    """And a file that is none is found before it comes to a GPU."""
    path = tmp_path / "m" / "1" / "model.plan"
    path.parent.mkdir(parents=True)
    path.write_bytes(add_sub.plan)
    assert _messages(check_model(tmp_path / "m")) == [
        f"1/model.plan was built by TensorRT-RTX {add_sub.version} for compute capability 8.6"
    ]
    path.write_bytes(b"junk")
    assert any(
        "1/model.plan is not a TensorRT" in item for item in _messages(check_model(tmp_path / "m"))
    )


def _messages(check: ModelCheck) -> list[str]:
    return [item.message for item in check.findings if "model.plan" in item.message]


def test_an_engine_of_tensorrt_is_told_from_one_of_tensorrt_rtx():
    header = parse_header(TENSORRT_PLAN, len(TENSORRT_PLAN), "1/model.plan")
    assert (header.library, header.version) == ("tensorrt", (11, 4, 0, 106))
    assert header.capabilities == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "its 0 bytes do not begin like one"),
        (b"\x08\x0a\x12\x07pytorch", "is not a TensorRT engine"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "a ZIP archive"),
        (header_bytes(b"ftrt", 500), "cut short: it has 64 bytes of the 500"),
    ],
)
def test_a_file_that_is_no_engine_is_refused_with_what_it_is(content, words):
    with pytest.raises(ModelLoadError) as caught:
        parse_header(content, len(content), "1/model.plan")
    assert words in caught.value.message
    assert "1/model.plan" in caught.value.message


def test_unknown_device_bits_are_not_guessed_at():
    content = header_bytes(b"vtrt", 64, bits=1 << 20)
    assert parse_header(content, 64, "1/model.plan").capabilities == ()


@pytest.mark.parametrize(
    ("header", "installed", "is_compatible", "fits"),
    [
        (RTX, "1.7.1.116", False, True),
        (RTX, "1.7.1.120", False, True),
        (RTX, "1.8.0.3", False, False),
        (TENSORRT, "11.4.0.106", False, True),
        (TENSORRT, "11.5.0.1", False, False),
        (TENSORRT, "11.5.0.1", True, True),
        (TENSORRT, "11.3.0.1", True, True),
        (TENSORRT, "12.0.0.1", True, True),
        (TENSORRT, "10.3.0.26", True, False),
    ],
)
def test_an_engine_goes_with_its_version(header, installed, is_compatible, fits):
    """TRT-01: or with others of its major version and later ones, if built version compatible."""
    if fits:
        check_version(header, installed, "1/model.plan", is_version_compatible=is_compatible)
        return
    with pytest.raises(ModelLoadError) as caught:
        check_version(header, installed, "1/model.plan", is_version_compatible=is_compatible)
    built = ".".join(map(str, header.version))
    assert f"was built by {header.product} {built}, but {header.product} {installed} is" in (
        caught.value.message
    )


def test_a_refused_version_says_how_lean_engines_are_allowed():
    with pytest.raises(ModelLoadError, match="--backend-config=tensorrt,version-compatible=true"):
        check_version(TENSORRT, "11.5.0.1", "1/model.plan", is_version_compatible=False)


def test_an_engine_for_other_gpus_is_refused_with_both_capabilities():
    check_capability(RTX, (8, 9), "GPU 0 (L4)", "1/model.plan")
    check_capability(TENSORRT, (9, 0), "GPU 0 (H100)", "1/model.plan")  # its header does not tell
    with pytest.raises(ModelLoadError) as caught:
        check_capability(RTX, (9, 0), "GPU 0 (H100)", "1/model.plan")
    assert "built for compute capability 8.6, 8.9, but GPU 0 (H100) has 9.0" in caught.value.message


def test_a_library_that_cannot_read_the_engine_is_refused_by_name():
    check_library(RTX, "", "", "1/model.plan")
    check_library(RTX, "tensorrt_rtx", "parameter 'library'", "1/model.plan")
    with pytest.raises(InvalidArgumentError) as caught:
        check_library(RTX, "tensorrt", "parameter 'library'", "1/model.plan")
    assert "built by TensorRT-RTX 1.7.1.116, which TensorRT cannot read" in caught.value.message


def test_the_runtimes_own_verdict_is_said_in_words():
    assert validity_words(0) == ""
    assert "another version" in validity_words(1)
    assert validity_words(2 | 4).count(";") == 1
