"""Which libraries are backends for Conch, where they may lie, and that the header is true."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

from serving.backends.native import INCLUDE_DIRECTORY, abi
from serving.backends.native.backend import open_backend
from serving.backends.native.library import check_file
from serving.backends.registry import BackendRegistry
from serving.config.protobuf import pb
from serving.errors import ServingError, UnsupportedError
from serving.in_process import ModelServer
from tests.serving.backends.compiled_c import compile_library, needs_gcc
from tests.serving.backends.native.libraries import (
    EXAMPLES,
    PROBE,
    PROBE_CONFIG,
    ROOT,
    SCALE_CONFIG,
    build,
    example,
    write_model,
)

HEADER = INCLUDE_DIRECTORY / "conch_backend.h"
STRUCTURES = {
    "conch_error": abi.Error,
    "conch_tensor": abi.Tensor,
    "conch_parameter": abi.Parameter,
    "conch_request": abi.Request,
    "conch_response": abi.Response,
    "conch_host": abi.Host,
    "conch_setting": abi.Setting,
    "conch_backend": abi.Backend,
    "conch_model": abi.Model,
    "conch_instance": abi.Instance,
    "conch_attributes": abi.Attributes,
}
TRITON = """
#include <stddef.h>
extern void *TRITONBACKEND_RequestInputCount(void *request);
void *TRITONBACKEND_ModelInstanceExecute(void *instance, void *requests, unsigned count) {
    (void)instance; (void)count;
    return TRITONBACKEND_RequestInputCount(requests);
}
"""


@needs_gcc
def test_the_structures_here_are_those_of_the_header(tmp_path):
    """Sizes and offsets of every member."""
    lines = []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for member, *_ in structure._fields_:
            lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
    source = tmp_path / "offsets.c"
    body = "\n".join(lines)
    source.write_text(f'#include "conch_backend.h"\nint main(void) {{\n{body}\nreturn 0;\n}}\n')
    program = tmp_path / "offsets"
    subprocess.run(["gcc", f"-I{INCLUDE_DIRECTORY}", str(source), "-o", str(program)], check=True)

    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout

    expected = []
    for name, structure in STRUCTURES.items():
        expected.append(f"{name} {ctypes.sizeof(structure)}")
        for member, *_ in structure._fields_:
            expected.append(f"{name}.{member} {getattr(structure, member).offset}")
    assert printed.splitlines() == expected


def test_the_numbers_here_are_those_of_the_header():
    text = HEADER.read_text()
    found = {name: int(number) for name, number in re.findall(r"(CONCH_\w+) = (\d+)", text)}

    for number, code in abi.CODES.items():
        assert found[f"CONCH_{code.name}"] == number
    for name, number in pb.DataType.items():
        kind = name.removeprefix("TYPE_").replace("STRING", "BYTES")
        if kind != "INVALID":
            assert found[f"CONCH_{kind}"] == number
    assert f"#define CONCH_BACKEND_ABI_VERSION {abi.ABI_VERSION}u" in text
    assert f"#define CONCH_MESSAGE_SIZE {abi.MESSAGE_SIZE}" in text


@needs_gcc
@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"),
    [
        ("gcc", "c99", ".c"),
        ("gcc", "c17", ".c"),
        ("g++", "c++11", ".cpp"),
        ("g++", "c++20", ".cpp"),
    ],
)
def test_the_header_is_clean_c_and_cpp(tmp_path, compiler, standard, suffix):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    source = tmp_path / f"empty{suffix}"
    source.write_text('#include "conch_backend.h"\n')
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]

    subprocess.run([compiler, *flags, f"-I{INCLUDE_DIRECTORY}", str(source)], check=True)


@needs_gcc
@pytest.mark.parametrize("name", ["scale", "count"])
def test_examples_are_built_by_the_line_that_they_show(tmp_path, name):
    """SMP-01: beginners copy it."""
    text = (EXAMPLES / f"{name}.c").read_text()
    line = re.search(r"^ \*\s+(gcc .*)$", text, re.MULTILINE)
    assert line is not None
    command = line.group(1).replace("../../serving/backends/native", str(INCLUDE_DIRECTORY))
    shutil.copy(EXAMPLES / f"{name}.c", tmp_path)

    subprocess.run(command.split(), cwd=tmp_path, check=True)

    check_file(name, tmp_path / f"libconch_{name}.so")


def test_the_header_is_part_of_the_package():
    """Who installs Conch has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    data = project["tool"]["setuptools"]["package-data"]
    assert HEADER.name in data["serving.backends.native"]


# -- what is no backend for Conch


@needs_gcc
def test_a_library_for_triton_is_refused_in_one_sentence(tmp_path):
    """Its names would be found, its calls would crash."""
    path = compile_library(TRITON, tmp_path / "theirs" / "libtriton_theirs.so")

    with pytest.raises(ServingError) as refused:
        BackendRegistry(tmp_path).get("theirs")

    assert refused.value.message == (
        "backend 'theirs': theirs/libtriton_theirs.so is a library for Triton, which cannot be "
        "loaded here: build its source anew against conch_backend.h, or use the backend's Python "
        "counterpart"
    )
    assert path.exists()


@needs_gcc
def test_what_is_built_in_stands_in_for_a_library_for_triton(tmp_path):
    """A Triton installation's backend directory may stay as it is."""
    compile_library(TRITON, tmp_path / "identity" / "libtriton_identity.so")

    assert BackendRegistry(tmp_path).get("identity").source.startswith("serving.backends.identity")


@pytest.mark.parametrize("content", [b"", b"no library at all", b"\x7fELF, but empty"])
def test_a_file_that_is_no_backend_is_refused(tmp_path, content):
    path = tmp_path / "libconch_x.so"
    path.write_bytes(content)

    with pytest.raises(UnsupportedError, match="is no backend library: it does not export"):
        open_backend("x", path)


def refusal(library: Path, config=PROBE_CONFIG):
    root = library.parent / "models"
    shutil.copy(library, write_model(root, "m", config))
    with ModelServer(root) as server, pytest.raises(ServingError) as refused:
        server.load("m")
    return refused.value.message


@needs_gcc
def test_a_library_for_another_version_of_the_header_is_refused(tmp_path):
    library = build(PROBE, tmp_path / "libconch_probe.so", "-DABI_VERSION=7")

    assert (
        "1/libconch_probe.so was built for version 7 of conch_backend.h, this server has version 1"
        in refusal(library)
    )


@needs_gcc
def test_a_library_that_cannot_execute_is_refused(tmp_path):
    """BE-002: execute is the one function that must be there."""
    source = "unsigned conch_backend_abi_version(void) { return 1; }"
    library = compile_library(source, tmp_path / "libconch_probe.so")

    assert "must export conch_backend_abi_version and conch_instance_execute" in refusal(library)


@needs_gcc
def test_a_library_whose_own_libraries_are_missing_is_refused_with_the_cause(tmp_path):
    source = """
extern int never_there(void);
unsigned conch_backend_abi_version(void) { return 1; }
int conch_instance_execute(void) { return never_there(); }
"""
    library = compile_library(source, tmp_path / "libconch_probe.so", "-Wl,-z,now")

    assert "1/libconch_probe.so cannot be opened: undefined symbol: never_there" in refusal(library)


@needs_gcc
def test_a_backend_of_execute_alone_serves(tmp_path):
    """BE-002: every other function is optional."""
    source = """
#include "conch_backend.h"
uint32_t conch_backend_abi_version(void) { return CONCH_BACKEND_ABI_VERSION; }
int32_t conch_instance_execute(
    conch_instance *instance, const conch_request *const *requests, uint32_t count,
    conch_error *error)
{
  for (uint32_t index = 0; index < count; index++) {
    conch_tensor out = requests[index]->inputs[0];
    out.name = "OUT";
    const conch_response response = {.outputs = &out, .output_count = 1};
    instance->model->backend->host->respond(
        requests[index], &response, CONCH_RESPONSE_FINAL, error);
  }
  return CONCH_OK;
}
"""
    config = SCALE_CONFIG.replace('"scale"', '"least"')
    folder = write_model(tmp_path / "models", "m", config)
    compile_library(source, folder / "libtriton_least.so", f"-I{INCLUDE_DIRECTORY}")
    (folder / "libtriton_least.c").unlink()
    with ModelServer(tmp_path / "models", exit_timeout_secs=5) as server:
        server.load("m")

        answer = server.infer("m", {"IN": np.ones((2, 3), np.float32)})

    assert answer["OUT"].tolist() == [[1, 1, 1]] * 2


# -- where it may lie


@needs_gcc
def test_it_is_looked_for_near_the_model_first(tmp_path):
    """Version folder, model folder, backend directory: each hides the next."""
    good = example("scale", tmp_path / "built")
    directory = tmp_path / "backends"
    folder = write_model(tmp_path / "models", "m", SCALE_CONFIG)
    places = [directory / "scale", folder.parent, folder]
    registry = BackendRegistry(directory)

    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(good, place)
        found = registry.get("scale", version_directory=folder)
        assert found.source == str(place / good.name)


@needs_gcc
def test_models_bring_native_code_only_where_it_is_allowed(tmp_path):
    """What lies in the backend directory, an administrator put there."""
    library = example("scale", tmp_path / "backends" / "scale")
    folder = write_model(tmp_path / "models", "m", SCALE_CONFIG)
    config = {"": {"allow-native-code": "false"}}
    strict = BackendRegistry(tmp_path / "backends", config)

    assert strict.get("scale", version_directory=folder).source == str(library)

    shutil.copy(library, folder)
    with pytest.raises(UnsupportedError, match="CONCH_ALLOW_NATIVE_CODE=true"):
        BackendRegistry(None, config).get("scale", version_directory=folder)
    mild = BackendRegistry(None, config | {"scale": {"allow-native-code": "true"}})
    assert mild.get("scale", version_directory=folder).source == str(folder / library.name)


@needs_gcc
def test_the_server_itself_does_not_open_what_runs_in_processes_of_its_own(tmp_path):
    """A library that crashes when it is opened cannot take the server with it."""
    source = """
#include "conch_backend.h"
#include <stdlib.h>
__attribute__((constructor)) static void opened(void) { abort(); }
uint32_t conch_backend_abi_version(void) { return CONCH_BACKEND_ABI_VERSION; }
int32_t conch_instance_execute(
    conch_instance *a, const conch_request *const *b, uint32_t c, conch_error *d)
{
  (void)a; (void)b; (void)c; (void)d;
  return CONCH_OK;
}
"""
    library = compile_library(source, tmp_path / "libconch_probe.so", f"-I{INCLUDE_DIRECTORY}")
    apart = 'parameters { key: "instance_isolation" value { string_value: "process" } }'

    message = refusal(library, PROBE_CONFIG + apart)

    assert "SIGABRT" in message
