"""Whether the machine code in a PT2 archive can run here: told before it is loaded, since code for
another CPU ends the process.

Pure but for reading /proc/cpuinfo once; load threads. Source: spec PT-09..14, AOTInductor's
metadata.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from serving.errors import ModelLoadError

_NEEDED_FLAGS: Mapping[str, tuple[str, ...]] = {
    "AVX2": ("avx2", "fma", "f16c"),
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"),
    "AVX512_VNNI": ("avx512_vnni",),
    "AMX_TILE": ("amx_tile", "amx_bf16", "amx_int8"),
    "ASIMD": ("asimd",),
}
"""What inductor calls an instruction set -> flags of the kernel that it is compiled with."""
_REMEDY = "compile the archive on a machine like this one"


def check_metadata(
    metadata: Mapping[str, str],
    *,
    flags: Collection[str] | None = None,
    machine: str | None = None,
) -> None:
    """`flags`: of the CPU as the kernel names them, empty where it does not; None for this one's.

    Raises: ModelLoadError for code of another system, another kind of machine or a CPU that can
    more than this one.
    """
    system = metadata.get("AOTI_PLATFORM", sys.platform)
    if system != sys.platform:
        raise ModelLoadError(f"it was compiled for {system}, this is {sys.platform}: {_REMEDY}")
    here = machine or platform.machine()
    there = metadata.get("AOTI_MACHINE", here)
    if there != here:
        raise ModelLoadError(f"it was compiled for {there}, this machine is {here}: {_REMEDY}")
    known = cpu_flags() if flags is None else flags
    if not known:
        return
    for isa in metadata.get("AOTI_CPU_ISA", "").split():
        missing = [flag for flag in _NEEDED_FLAGS.get(isa, ()) if flag not in known]
        if missing:
            raise ModelLoadError(
                f"it was compiled for a CPU with {metadata['AOTI_CPU_ISA']}, this one lacks "
                f"{', '.join(missing)}: {_REMEDY}, or with ATEN_CPU_CAPABILITY=avx2 and "
                "TORCHINDUCTOR_CPP_MARCH=x86-64-v3 set"
            )


def check_device(metadata: Mapping[str, str], device: str) -> None:
    """`device`: cpu or cuda, where an instance is to run. Raises: ModelLoadError."""
    compiled = metadata.get("AOTI_DEVICE_KEY", device)
    if compiled == device:
        return
    if compiled == "cpu":
        raise ModelLoadError(
            "it was compiled for the CPU and an instance is to run on a GPU: set kind: KIND_CPU "
            "in instance_group, or compile a model that lies on a GPU"
        )
    raise ModelLoadError(
        f"it was compiled for {compiled} and an instance is to run on the CPU: set kind: KIND_GPU "
        "in instance_group, or compile a model that lies on the CPU"
    )


def check_capability(metadata: Mapping[str, str], found: tuple[int, int]) -> None:
    """`found`: the compute capability of the GPU, as (major, minor). Kernels run on the same major
    number with an equal or higher minor one. Raises: ModelLoadError.
    """
    digits = "".join(filter(str.isdigit, metadata.get("AOTI_COMPUTE_CAPABILITY", "")))
    if len(digits) < 2:
        return
    major, minor = int(digits[:-1]), int(digits[-1])
    if major != found[0] or minor > found[1]:
        raise ModelLoadError(
            f"it was compiled for GPUs of compute capability {major}.{minor}, this one has "
            f"{found[0]}.{found[1]}: compile the archive on a GPU like this one"
        )


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Of this CPU; empty where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
