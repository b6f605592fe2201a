"""Machine code is looked at before it is loaded: system, CPU, device."""

from __future__ import annotations

import pytest

from serving.backends.pytorch.machine import (
    check_capability,
    check_device,
    check_metadata,
    cpu_flags,
)
from serving.errors import ModelLoadError

AVX2 = frozenset({"avx2", "fma", "f16c"})
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512vl", "avx512bw"}


@pytest.mark.parametrize(
    ("isa", "flags", "missing"),
    [
        ("AVX2", AVX2, ""),
        ("AVX512", AVX2, "avx512f, avx512dq, avx512vl, avx512bw"),
        ("AVX512 AVX512_VNNI", AVX512, "avx512_vnni"),
        ("AVX512 AVX512_VNNI", AVX512 | {"avx512_vnni"}, ""),
        ("AVX512 AVX512_VNNI AMX_TILE", AVX512 | {"avx512_vnni"}, "amx_tile, amx_bf16, amx_int8"),
        ("INVALID_VEC_ISA", frozenset({"sse2"}), ""),
        ("ASIMD", frozenset({"fp", "asimd"}), ""),
        ("AVX512", frozenset(), ""),
    ],
)
def test_a_cpu_that_can_less_than_the_code_needs_is_refused(isa, flags, missing):
    """PT-09..14: AOTI_CPU_ISA against this CPU; code for another one ends the process."""
    metadata = {"AOTI_CPU_ISA": isa}
    if not missing:
        check_metadata(metadata, flags=flags)
        return
    with pytest.raises(ModelLoadError) as refused:
        check_metadata(metadata, flags=flags)
    assert refused.value.message == (
        f"it was compiled for a CPU with {isa}, this one lacks {missing}: compile the archive on "
        "a machine like this one, or with ATEN_CPU_CAPABILITY=avx2 and "
        "TORCHINDUCTOR_CPP_MARCH=x86-64-v3 set"
    )


def test_another_kind_of_machine_is_refused():
    with pytest.raises(ModelLoadError, match="compiled for aarch64, this machine is x86_64"):
        check_metadata({"AOTI_MACHINE": "aarch64"}, machine="x86_64")


def test_an_archive_that_tells_nothing_is_not_refused():
    check_metadata({}, flags=AVX2)
    check_device({}, "cpu")
    check_capability({}, (9, 0))


@pytest.mark.parametrize(
    ("compiled", "device", "words"),
    [
        ("cpu", "cpu", ""),
        ("cuda", "cuda", ""),
        (
            "cpu",
            "cuda",
            "compiled for the CPU and an instance is to run on a GPU: set kind: KIND_CPU",
        ),
        (
            "cuda",
            "cpu",
            "compiled for cuda and an instance is to run on the CPU: set kind: KIND_GPU",
        ),
        ("xpu", "cuda", "compiled for xpu"),
    ],
)
def test_code_runs_on_the_device_that_it_was_compiled_for(compiled, device, words):
    """PT-23: AOTI_DEVICE_KEY."""
    metadata = {"AOTI_DEVICE_KEY": compiled}
    if not words:
        check_device(metadata, device)
        return
    with pytest.raises(ModelLoadError, match=words):
        check_device(metadata, device)


@pytest.mark.parametrize(
    ("compiled", "found", "is_refused"),
    [
        ("90", (9, 0), False),
        ("86", (8, 9), False),
        ("89", (8, 6), True),
        ("80", (9, 0), True),
        ("100", (10, 0), False),
        ("sm_90", (9, 0), False),
        ("", (9, 0), False),
    ],
)
def test_kernels_run_on_the_same_generation_of_gpus_or_a_later_one_of_it(
    compiled, found, is_refused
):
    metadata = {"AOTI_COMPUTE_CAPABILITY": compiled}
    if not is_refused:
        check_capability(metadata, found)
        return
    with pytest.raises(ModelLoadError, match="compiled for GPUs of compute capability"):
        check_capability(metadata, found)


def test_this_cpu_tells_what_it_can():
    assert cpu_flags()
