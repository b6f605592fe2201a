"""What each backend calls its platform and its model file (REP-020..033). Pure data; any thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelFile:
    backend: str
    platform: str
    filename: str
    may_be_file: bool = True
    may_be_directory: bool = False
    is_inferred: bool = True
    """The file alone tells the backend."""
    is_written: bool = True
    """default_model_filename is filled in with the name."""


MODEL_FILES: tuple[ModelFile, ...] = (
    ModelFile("tensorrt", "tensorrt_plan", "model.plan"),
    ModelFile("onnxruntime", "onnxruntime_onnx", "model.onnx", may_be_directory=True),
    ModelFile("openvino", "", "model.xml"),
    ModelFile("pytorch", "pytorch_libtorch", "model.pt"),
    ModelFile("pytorch", "libtorch", "model.pt", is_inferred=False),
    ModelFile("pytorch", "torch_aoti", "model.pt2"),
    ModelFile("python", "", "model.py"),
    ModelFile(
        "tensorflow",
        "tensorflow_savedmodel",
        "model.savedmodel",
        may_be_file=False,
        may_be_directory=True,
    ),
    ModelFile("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    ModelFile("dali", "", "model.dali", is_inferred=False, is_written=False),
    ModelFile("vllm", "", "model.json", is_inferred=False, is_written=False),
)
"""In the order in which a version directory is searched; for a backend without a platform the first
entry holds."""

ENSEMBLE = "ensemble"


def platforms_of(backend: str) -> list[str]:
    return [item.platform for item in MODEL_FILES if item.backend == backend and item.platform]


def backend_of_platform(platform: str) -> str:
    """The backend of a known platform, or ""."""
    return next(
        (item.backend for item in MODEL_FILES if platform and item.platform == platform), ""
    )


def model_file(backend: str, platform: str) -> ModelFile | None:
    """What the backend looks for in a version directory; None where we do not know."""
    known = [item for item in MODEL_FILES if item.backend == backend]
    exact = [item for item in known if item.platform == platform]
    if exact:
        return exact[0]
    return known[0] if known and not platform else None


def backend_of_filename(filename: str) -> str:
    """The backend whose default file has this extension: a guess for messages."""
    for item in MODEL_FILES:
        suffix = item.filename.removeprefix("model")
        if item.is_inferred and filename.endswith(suffix):
            return item.backend
    return ""
