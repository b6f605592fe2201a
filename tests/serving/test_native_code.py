"""Native code of models: where it is allowed, and that only whole libraries are opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.backends import openvino_options
from serving.backends.native.library import Library
from serving.backends.onnxruntime import options as onnxruntime_options
from serving.backends.onnxruntime import session as sessions
from serving.backends.onnxruntime.options import SessionSettings
from serving.backends.openvino import _core
from serving.backends.pytorch.init_library import InitLibrary
from serving.errors import ModelLoadError, UnsupportedError
from serving.native_code import KEY, check_whole
from tests.serving.backends import onnx_files
from tests.serving.backends.compiled_c import compile_library, needs_gcc
from tests.serving.loading import context_of

CODE = "int answers[4096] = {42}; int answer(void) { return answers[0]; }"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return compile_library(CODE, tmp_path / "1" / "libmine.so")


@pytest.fixture
def cut(library: Path) -> Path:
    content = library.read_bytes()
    library.write_bytes(content[: len(content) // 2])
    return library


def open_with_onnxruntime(path: Path) -> object:
    model = onnx_files.write_identity(path.parent.parent)
    settings = SessionSettings(custom_op_libraries=(path,))
    return sessions.open_session(model, settings, [sessions.CPU])


@needs_gcc
@pytest.mark.parametrize(
    "use",
    [
        Library,
        lambda path: InitLibrary(path, path.parent, -1),
        open_with_onnxruntime,
        lambda path: _core([path]),
    ],
    ids=["native", "pytorch", "onnxruntime", "openvino"],
)
def test_a_library_that_is_cut_short_is_refused_with_its_sizes(cut, use):
    with pytest.raises(
        ModelLoadError, match=r"1/libmine\.so is cut short, it has \d+ of \d+ bytes"
    ):
        use(cut)


@needs_gcc
def test_a_whole_library_passes_without_its_section_headers_too(library):
    check_whole(library)
    content = library.read_bytes()
    library.write_bytes(content[: content.rindex(b".shstrtab")])

    check_whole(library)


@pytest.mark.parametrize(
    "content", [b"", b"no library", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(58)]
)
def test_what_is_no_library_is_left_to_whoever_opens_it(tmp_path, content):
    path = tmp_path / "any.so"
    path.write_bytes(content)

    check_whole(path)
    check_whole(tmp_path / "missing.so")


@pytest.mark.parametrize(
    ("options", "what", "extra"),
    [
        (
            onnxruntime_options,
            "op_library_filename",
            'model_operations { op_library_filename: "ops.so" }',
        ),
        (
            onnxruntime_options,
            "parameter 'trt_extra_plugin_lib_paths'",
            'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" '
            'parameters { key: "trt_extra_plugin_lib_paths" value: "/ops.so" } } } }',
        ),
        (
            openvino_options,
            "parameter 'CPU_EXTENSION_PATH'",
            'parameters { key: "CPU_EXTENSION_PATH" value { string_value: "/ops.so" } }',
        ),
    ],
)
def test_models_bring_operators_only_where_it_is_allowed(options, what, extra):
    """Workers of the console forbid it: whoever may publish models would get in."""
    text = f'name: "m" backend: "any" {extra}'

    with pytest.raises(UnsupportedError) as caught:
        options.read_settings(context_of(text, backend_config={KEY: "false"}))

    assert caught.value.message.startswith(f"{what} runs native code of the model's")
    assert "CONCH_ALLOW_NATIVE_CODE=true" in caught.value.message
