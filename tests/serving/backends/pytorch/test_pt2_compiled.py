"""PT2 archives that AOTInductor compiles: a minute for the first one, seconds for the next."""

from __future__ import annotations

import contextlib
import logging
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.config.torch_call_spec import parse_call_spec
from serving.errors import ErrorCode, ServingError
from tests.serving.backends.compiled_c import GCC
from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.backends.pytorch import archives, pt2_checks
from tests.serving.backends.pytorch.archives import LOOKUP_CONFIG, NET_CONFIG
from tests.serving.config.pt2_recordings import recorded
from tests.serving.loading import load, outputs_of

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(GCC is None, reason="AOTInductor compiles with g++, which is not here"),
    pytest.mark.filterwarnings("default"),  # those of the compiler
]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    """Directories of models, by name."""
    import torch._inductor

    root = tmp_path_factory.mktemp("aoti")
    with _own_cache(root / "cache"):
        for name, archive in archives.KINDS.items():
            path = root / name / "1" / "model.pt2"
            path.parent.mkdir(parents=True)
            torch._inductor.aoti_compile_and_package(archive.exported(), package_path=str(path))
    return root


@contextlib.contextmanager
def _own_cache(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        yield


async def test_the_example_has_both_kinds_of_names(compiled):
    """PT-01, PT-09, PT-10, PT-11: its 6 inputs and 8 outputs, nested."""
    await pt2_checks.check_example(compiled / "example")


async def test_an_archive_with_a_dynamic_first_dimension_batches(compiled):
    """PT-12."""
    await pt2_checks.check_batches(compiled / "net")


async def test_an_archive_with_a_fixed_batch_refuses_other_sizes_at_run_time(compiled, caplog):
    """PT-12: the code itself would read past the end of the tensor."""
    await pt2_checks.check_fixed_batch(compiled / "fixed", caplog)


async def test_sizes_that_follow_from_others_are_checked(compiled):
    """PT-12: the code itself would read past the end of the shorter one."""
    await pt2_checks.check_joined_sizes(compiled / "joined")


async def test_sequences_have_controls_and_state_as_ordinary_tensors(compiled):
    """PT-13."""
    await pt2_checks.check_sequence(compiled / "accumulate")


async def test_instances_that_share_weights_answer_alike(compiled):
    """PT-14, PT-18."""
    await pt2_checks.check_shared_weights(compiled / "net")


async def test_an_index_out_of_range_ends_no_more_than_the_process_of_an_instance(compiled, caplog):
    """PT-09: the code checks it where no exception may leave."""
    isolated = 'parameters { key: "instance_isolation" value { string_value: "process" } }'
    with caplog.at_level(logging.WARNING):
        model = await load(LOOKUP_CONFIG + isolated, compiled / "lookup")
    error = await pt2_checks.infer_error(model, {"ARGS[0]": np.full(64, 77)})
    assert "its process was killed by signal SIGABRT" in error.message

    answer = await outputs_of(model, {"ARGS[0]": np.arange(50).repeat(2)[:64]})

    assert answer["RESULT"].shape == (64,)
    assert "ends the process that runs 1/model.pt2" not in caplog.text
    await model.drain_and_close()


async def test_code_that_may_end_the_server_is_served_with_a_warning(compiled, caplog):
    """PT-09."""
    with caplog.at_level(logging.WARNING):
        model = await load(LOOKUP_CONFIG, compiled / "lookup")

    assert "ends the process that runs 1/model.pt2: give the model the parameter" in caplog.text
    await model.drain_and_close()


async def test_code_for_another_cpu_is_refused(compiled, monkeypatch):
    """PT-09..14: told, where loading it would end the server."""
    monkeypatch.setattr("serving.backends.pytorch.machine.cpu_flags", lambda: {"sse2"})

    with pytest.raises(ServingError, match="it was compiled for a CPU with .* this one lacks"):
        await load(NET_CONFIG, compiled / "net")


async def test_an_archive_without_its_source_is_served_with_a_warning(compiled, tmp_path, caplog):
    """PT-09: then the loaded code tells the names, and nothing tells shapes."""
    (tmp_path / "1").mkdir()
    with (
        zipfile.ZipFile(compiled / "net" / "1" / "model.pt2") as source,
        zipfile.ZipFile(tmp_path / "1" / "model.pt2", "w") as target,
    ):
        for name in source.namelist():
            if not name.endswith(".cpp"):
                target.writestr(name, source.read(name))

    await pt2_checks.check_batches(tmp_path)

    assert "1/model.pt2 does not tell which shapes its code takes" in caplog.text
    with pytest.raises(ServingError, match="input 'mask' names none of its tensors"):
        await load(NET_CONFIG.replace("INPUT__1", "mask"), tmp_path)


async def test_an_output_of_another_type_than_the_config_says_is_told(compiled):
    """PT-06: compiled code does not tell it before it has run."""
    text = NET_CONFIG.replace(
        '"OUTPUT__1" data_type: TYPE_FP32', '"OUTPUT__1" data_type: TYPE_INT8'
    )
    model = await load(text, compiled / "net")

    with pytest.raises(ServingError) as caught:
        await outputs_of(model, pt2_checks.ones(1))

    assert caught.value.code is ErrorCode.INVALID_ARG
    assert "configuration expects datatype TYPE_INT8 for output 'OUTPUT__1'" in caught.value.message
    await model.drain_and_close()


def test_the_recordings_are_what_archives_tell(compiled):
    """PT-11: what tests without a compiler rely on."""
    import torch

    path = compiled / "example" / "1" / "model.pt2"
    loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1)

    call_spec = loader.get_call_spec()
    assert parse_call_spec(*call_spec) == parse_call_spec(*recorded("seed")["call_spec"])
    assert loader.get_metadata().keys() == recorded("seed")["metadata"].keys()


class TestCompiledArchive(BackendContract):
    backend = "pytorch"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls, compiled):
        return Subject(
            config='platform: "torch_aoti"\nbackend: "pytorch"\nmax_batch_size: 8\n'
            + archives.NET_IO,
            write=lambda folder: shutil.copy(compiled / "net" / "1" / "model.pt2", folder),
            inputs=net_inputs,
            expected=net_outputs,
            completes=False,
            runtime_module="torch",
        )


class TestExportedProgram(BackendContract):
    """Takes no compiler, and its time."""

    backend = "pytorch"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return Subject(
            config='platform: "torch_aoti"\nbackend: "pytorch"\nmax_batch_size: 8\n'
            + archives.NET_IO,
            write=archives.NET.export,
            inputs=net_inputs,
            expected=net_outputs,
            completion_config='platform: "torch_aoti"',
            runtime_module="torch",
        )


def net_inputs(rows):
    rng = np.random.default_rng()
    return {
        "INPUT__0": rng.random((rows, 4), np.float32),
        "INPUT__1": rng.random((rows, 2), np.float32),
    }


def net_outputs(sent):
    weight = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
    bias = np.array([0.5, -0.5, 1.0], np.float32)
    return {
        "OUTPUT__0": np.maximum(sent["INPUT__0"] @ weight.T + bias, 0),
        "OUTPUT__1": sent["INPUT__1"] * 2,
    }
