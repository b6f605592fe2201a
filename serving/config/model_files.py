"""Reads what a model file says, by backend, and compares it with the config.

No ML runtime is imported and no model code runs. Any thread; blocks on the disk.
"""

from __future__ import annotations

from pathlib import Path

from serving.config.backend_files import ModelFile, model_file
from serving.config.compare import CODE, compare
from serving.config.compare_openvino import as_reshaped
from serving.config.compare_pt2 import compare_compiled, compare_exported
from serving.config.compare_torch import compare_module
from serving.config.compare_trees import compare_trees, parameters_of
from serving.config.findings import Finding, Severity
from serving.config.plan_header import read_header
from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.signature import Signature, read_onnx_signature
from serving.config.signature_openvino import read_openvino_signature
from serving.config.signature_pt2 import CompiledProgram, read_pt2_signature
from serving.config.signature_tensorflow import DEFAULT_SIGNATURE, read_savedmodel_signature
from serving.config.signature_torch import ModuleSignature, read_torchscript_signature
from serving.config.signature_trees import TreeSignature, read_tree_signature
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError

FileSignature = Signature | ModuleSignature | CompiledProgram | TreeSignature


def expected_file(config: pb.ModelConfig) -> ModelFile | None:
    """What the backend looks for in each version directory; None where we do not know."""
    if config.backend == "pytorch" and config.runtime:
        return None
    if config.backend == "fil":
        trees = parameters_of(config)
        return ModelFile("fil", "", trees.filename, is_inferred=False) if trees else None
    return model_file(config.backend, config.platform)


def _parameter(config: pb.ModelConfig, name: str) -> str:
    # Reading a map of messages by key would add the key.
    return config.parameters[name].string_value if name in config.parameters else ""


def read_signature(report: Report, known: ModelFile, path: Path, file: str) -> FileSignature | None:
    """What the file says; a file that cannot be such a model is a finding."""
    try:
        if known.backend == "tensorrt":
            # Names, types and shapes are in there, too; only the runtime on its GPU can tell them.
            report.note("", f"{file} was built by {read_header(path)}", code=CODE)
        signature = _read(report.config, known, path)
    except InvalidArgumentError as error:
        message = error.message.replace(str(path), file)
        report.findings.append(Finding(Severity.ERROR, message, file=file, code=CODE))
        return None
    if isinstance(signature, Signature):
        _check_external(report, signature, path, file)
    return signature


def _read(config: pb.ModelConfig, known: ModelFile, path: Path) -> FileSignature | None:
    if known.backend == "onnxruntime" or (known.backend == "openvino" and path.suffix == ".onnx"):
        return read_onnx_signature(path)
    if known.backend == "openvino" and path.suffix == ".xml":
        return read_openvino_signature(path)
    if known.platform == "tensorflow_savedmodel":
        wanted = _parameter(config, "TF_SIGNATURE_DEF") or DEFAULT_SIGNATURE
        return read_savedmodel_signature(path, wanted)
    if known.platform == "torch_aoti":
        return read_pt2_signature(path)
    if known.backend == "pytorch":
        return read_torchscript_signature(path)
    if known.backend == "fil":
        trees = parameters_of(config)
        return read_tree_signature(path, trees.model_type) if trees else None
    return None


def _check_external(report: Report, signature: Signature, path: Path, file: str) -> None:
    beside = path if path.is_dir() else path.parent
    for name in signature.external_files:
        if escapes(name) or not (beside / name).is_file():
            report.findings.append(
                Finding(
                    Severity.ERROR,
                    f"the weights file '{name}' that {file} refers to is not beside it",
                    "upload it too: an ONNX model with external data needs all its files",
                    file=file,
                    code="REP-021",
                )
            )


def compare_with_config(report: Report, signature: FileSignature, file: str) -> None:
    """Report where the completed config contradicts the model file `file`."""
    if isinstance(signature, ModuleSignature):
        compare_module(report, signature, file)
    elif isinstance(signature, TreeSignature):
        compare_trees(report, signature, file)
    elif isinstance(signature, CompiledProgram):
        compare_compiled(report, signature, file)
    elif signature.call_spec is not None:
        compare_exported(report, signature, file)
    elif report.config.backend == "openvino":
        compare(report, as_reshaped(signature, report.config), file)
    else:
        compare(report, signature, file)
