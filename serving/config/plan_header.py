"""The first bytes of an engine file: which runtime made it, which version, for which GPUs.

Read before anything is deserialized: a runtime that is given a foreign engine says little, and
some builds crash. The layout is documented nowhere; it is what TensorRT-RTX 1.7 writes (seen in
engines built for every compute capability) and what the plan reader of TensorRT 11.4 checks:

     0  magic: "ftrt" TensorRT, "vtrt" TensorRT-RTX       24  version: major, minor, patch, build
    16  u64, bytes of the whole file                      28  platform tag
                                                          32  RTX: u32, one bit per GPU family

Used where a model is loaded and where a directory is checked; any thread. Source: spec TRT-01.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from serving.errors import InvalidArgumentError, ModelLoadError

TENSORRT = "tensorrt"
TENSORRT_RTX = "tensorrt_rtx"
PRODUCTS = {TENSORRT: "TensorRT", TENSORRT_RTX: "TensorRT-RTX"}

_HEADER = struct.Struct("<4s4x8xQ4B4sI")
_MAGIC = {b"ftrt": TENSORRT, b"vtrt": TENSORRT_RTX}
_CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))
"""By bit, from the lowest."""
_OTHER_FILES = (
    (b"version https://git-lfs", "a Git LFS pointer, not the engine: run git lfs pull"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x89HDF", "an HDF5 file"),
)

Version = tuple[int, int, int, int]
Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlanHeader:
    library: str
    """TENSORRT or TENSORRT_RTX."""
    version: Version
    capabilities: tuple[Capability, ...] = ()
    """Compute capabilities that it was built for; empty where the header does not tell."""

    @property
    def product(self) -> str:
        return PRODUCTS[self.library]

    def __str__(self) -> str:
        devices = _devices_text(self.capabilities)
        return f"{self.product} {text_of(self.version)}" + (f" for {devices}" if devices else "")


def read_header(path: Path) -> PlanHeader:
    """Raises: ModelLoadError naming the file and what is wrong with it."""
    file = f"{path.parent.name}/{path.name}"
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            start = handle.read(_HEADER.size)
    except OSError as error:
        raise ModelLoadError(f"{file} cannot be read: {error.strerror}") from error
    return parse_header(start, size, file)


def parse_header(start: bytes, size: int, file: str) -> PlanHeader:
    """`start`: the first bytes of a file of `size` bytes. Raises: ModelLoadError."""
    for beginning, what in _OTHER_FILES:
        if start.startswith(beginning):
            raise ModelLoadError(f"{file} is {what}")
    library = _MAGIC.get(start[:4])
    if library is None or len(start) < _HEADER.size:
        raise ModelLoadError(
            f"{file} is not a TensorRT engine: its {size} bytes do not begin like one; build the "
            "engine from the ONNX file with: manage.py build_engine"
        )
    _, wanted, major, minor, patch, build, _, bits = _HEADER.unpack_from(start)
    if size < wanted:
        raise ModelLoadError(
            f"{file} is cut short: it has {size} bytes of the {wanted} that its header announces; "
            "copy it again"
        )
    known = library == TENSORRT_RTX and not bits >> len(_CAPABILITIES)
    capabilities = _capabilities(bits) if known else ()
    return PlanHeader(library, (major, minor, patch, build), capabilities)


def _capabilities(bits: int) -> tuple[Capability, ...]:
    return tuple(item for bit, item in enumerate(_CAPABILITIES) if bits >> bit & 1)


def check_library(header: PlanHeader, wanted: str, where: str, file: str) -> None:
    """`wanted`: what `where` asks for, or empty. Raises: InvalidArgumentError."""
    if wanted and wanted != header.library:
        raise InvalidArgumentError(
            f"{file} was built by {header.product} {text_of(header.version)}, which "
            f"{PRODUCTS[wanted]} cannot read, but {where} says library '{wanted}': remove it, or "
            f"build the engine anew with {PRODUCTS[wanted]}"
        )


def check_version(
    header: PlanHeader, installed: str, file: str, *, is_version_compatible: bool
) -> None:
    """`installed`: as the runtime says it, e.g. 1.7.1.116. Raises: ModelLoadError.

    An engine goes with its version only, unless it was built version compatible: then it brings
    the runtime that it needs, and only an installation of an earlier major version cannot take it
    (TRT-01).
    """
    have = tuple(int(part) for part in installed.split(".")[:4] if part.isdigit())
    fits = have[:3] == header.version[:3]
    if is_version_compatible:
        fits = have[:1] >= header.version[:1]
    if not fits:
        hint = "" if is_version_compatible or have[:1] < header.version[:1] else _COMPATIBLE
        raise ModelLoadError(
            f"{file} was built by {header.product} {text_of(header.version)}, but "
            f"{header.product} {installed} is installed, which cannot read it: build the engine "
            f"anew on this installation, or install version {text_of(header.version)}{hint}"
        )


_COMPATIBLE = (
    "; an engine built version compatible needs --backend-config=tensorrt,version-compatible=true"
)


def check_capability(header: PlanHeader, device: Capability, device_name: str, file: str) -> None:
    """Raises: ModelLoadError for an engine that was built for other GPUs."""
    if header.capabilities and device not in header.capabilities:
        raise ModelLoadError(
            f"{file} was built for {_devices_text(header.capabilities)}, but {device_name} has "
            f"{device[0]}.{device[1]}: build the engine for that GPU"
        )


def _devices_text(capabilities: tuple[Capability, ...]) -> str:
    """Empty for none."""
    numbers = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
    return f"compute capability {numbers}" if numbers else ""


def text_of(version: Version) -> str:
    return ".".join(str(part) for part in version)


_VALIDITY = {
    1: "it was built by another version of TensorRT-RTX: build it anew",
    2: "it was not built for the compute capability of this GPU: build it for that",
    4: "the NVIDIA driver is too old for it: update the driver",
    8: "the CUDA runtime is too old for it: update TensorRT-RTX",
    16: "the GPU has too little memory for it: unload another model",
    32: "it is damaged: copy or build it anew",
    64: "CUDA does not work here: look at the driver's installation",
}


def validity_words(reasons: int) -> str:
    """The bits of EngineInvalidityDiagnostics as sentences; empty for none."""
    return "; ".join(words for bit, words in _VALIDITY.items() if reasons & bit)
