"""MODEL_INIT_LIBRARY: native code that a model runs before its archive is loaded (PT-22)."""

from __future__ import annotations

import numpy as np
import pytest

from serving.backends.pytorch.init_library import InitLibrary, library_of
from serving.errors import InvalidArgumentError, ModelLoadError, ServingError, UnsupportedError
from tests.serving.backends.compiled_c import compile_library, needs_gcc
from tests.serving.backends.pytorch import archives
from tests.serving.backends.pytorch.archives import NET_CONFIG
from tests.serving.config import pt2_recordings
from tests.serving.loading import load, outputs_of

RECORDER = r"""
#include <stdio.h>
#include <stdlib.h>

static void note(const char *what, const char *text, long number) {
    FILE *file = fopen(getenv("RECORDED_CALLS"), "a");
    if (file != NULL) {
        fprintf(file, "%s %s %ld\n", what, text, number);
        fclose(file);
    }
}

void *triton_pytorch_model_init(const char *model_dir, int device_index) {
    note("init", model_dir, device_index);
    return (void *)4711L;
}
"""
FINALIZER = """
void triton_pytorch_model_fini(void *state) { note("fini", "-", (long)state); }
"""
NOTHING = "int nothing_at_all(void) { return 0; }"

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    root = tmp_path_factory.mktemp("init_libraries")
    sources = {"both": RECORDER + FINALIZER, "init_only": RECORDER, "neither": NOTHING}
    return {
        name: compile_library(source, root / f"lib{name}.so") for name, source in sources.items()
    }


@pytest.fixture
def calls(tmp_path, monkeypatch):
    path = tmp_path / "calls"
    monkeypatch.setenv("RECORDED_CALLS", str(path))
    return lambda: path.read_text().splitlines() if path.exists() else []


def config(path, more=""):
    parameter = f'parameters {{ key: "MODEL_INIT_LIBRARY" value {{ string_value: "{path}" }} }}'
    return NET_CONFIG + parameter + more


@pytest.fixture
def model_directory(tmp_path):
    archives.NET.export(tmp_path / "model" / "1")
    return tmp_path / "model"


async def test_it_is_called_before_the_archive_is_loaded_and_again_at_unload(
    model_directory, libraries, calls
):
    """PT-22: with the version directory and -1 for the CPU; once, however many instances."""
    text = config(libraries["both"], "instance_group { count: 2 kind: KIND_CPU }")

    model = await load(text, model_directory)

    assert calls() == [f"init {model_directory / '1'} -1"]
    rows = {"INPUT__0": np.ones((1, 4), np.float32), "INPUT__1": np.ones((1, 2), np.float32)}
    assert (await outputs_of(model, rows))["OUTPUT__1"].tolist() == [[2, 2]]
    await model.drain_and_close()
    assert calls()[1:] == ["fini - 4711"]


async def test_a_process_of_its_own_calls_it_there(model_directory, libraries, calls):
    """PT-22: the server's process never sees the library."""
    process = 'parameters { key: "instance_isolation" value { string_value: "process" } }'

    model = await load(config(libraries["both"], process), model_directory)
    await model.drain_and_close()

    assert calls() == [f"init {model_directory / '1'} -1", "fini - 4711"]


async def test_it_is_called_before_the_code_of_the_archive_is_loaded(
    tmp_path, libraries, calls, monkeypatch
):
    """PT-22: custom operators must be there by then. The recorded archive has no code."""
    monkeypatch.setattr("serving.backends.pytorch.machine.cpu_flags", lambda: frozenset())
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.pt2").write_bytes(pt2_recordings.archive("plain"))

    with pytest.raises(ServingError, match="failed to load model 'm': 1/model.pt2"):
        await load(config(libraries["both"]), tmp_path)

    assert calls() == [f"init {tmp_path / '1'} -1", "fini - 4711"]


def test_a_library_without_a_finalizer_is_let_go(tmp_path, libraries, calls):
    """PT-22: triton_pytorch_model_fini is optional."""
    library = InitLibrary(libraries["init_only"], tmp_path, 3)
    library.close()
    library.close()

    assert calls() == [f"init {tmp_path} 3"]


async def test_a_library_that_lacks_the_entry_point_fails_the_load(model_directory, libraries):
    """PT-22."""
    with pytest.raises(ServingError) as refused:
        await load(config(libraries["neither"]), model_directory)

    assert (
        "MODEL_INIT_LIBRARY 'libneither.so' does not export triton_pytorch_model_init"
        in refused.value.message
    )


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), (b"no library", "file too short")]
)
async def test_a_library_that_cannot_be_opened_fails_the_load(
    model_directory, tmp_path, content, words
):
    """PT-22."""
    path = tmp_path / "libgone.so"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ServingError) as refused:
        await load(config(path), model_directory)

    assert "MODEL_INIT_LIBRARY 'libgone.so' cannot be opened: " in refused.value.message
    assert words in refused.value.message
    assert str(tmp_path) not in refused.value.message


def test_unset_nothing_happens():
    """PT-22."""
    assert library_of({}, {}) is None
    assert library_of({"MODEL_INIT_LIBRARY": " "}, {}) is None


def test_the_path_must_be_absolute():
    """PT-22."""
    with pytest.raises(ModelLoadError, match="is 'libx.so': it must be an absolute path"):
        library_of({"MODEL_INIT_LIBRARY": "libx.so"}, {})


def test_a_server_may_forbid_native_code():
    """PT-22: an administrator decides, not who publishes the model."""
    parameters = {"MODEL_INIT_LIBRARY": "/lib/libx.so"}

    with pytest.raises(UnsupportedError, match="CONCH_ALLOW_NATIVE_CODE=true"):
        library_of(parameters, {"allow-native-code": "false"})
    assert library_of(parameters, {"allow-native-code": "true"}) is not None
    with pytest.raises(InvalidArgumentError, match="must be true or false"):
        library_of(parameters, {"allow-native-code": "perhaps"})
