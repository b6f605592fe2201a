"""One call that says everything about a model directory: for the console and the command line.

Layout, config text, completion, rules, and what the model file itself declares. Reads files, runs
no model code, imports no ML runtime; any thread, blocks on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from serving.config.compare import fill_from_signature, with_values_of_model
from serving.config.compare_pt2 import named_as_configured, with_ordinal_names
from serving.config.compare_trees import check_tree_config, tree_tensors
from serving.config.complete import complete, fill_identity
from serving.config.findings import Finding, Severity
from serving.config.format import to_pbtxt
from serving.config.json_form import from_json
from serving.config.model_files import (
    FileSignature,
    compare_with_config,
    expected_file,
    read_signature,
)
from serving.config.pbtxt import ParsedConfig, parse, read_text
from serving.config.protobuf import pb
from serving.config.python_source import check_python_source
from serving.config.repair import Edit
from serving.config.report import Available, Report
from serving.config.signature import Signature
from serving.config.signature_trees import TreeSignature
from serving.config.torch_parameters import check_torch_parameters
from serving.config.validate import validate
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError
from serving.repository.layout import (
    CONFIG_NAME,
    ModelDirectory,
    check_layout,
    check_model_files,
    scan_model,
)
from serving.repository.version_policy import missing_versions, select_versions

MAX_VERSIONS_READ = 8
"""Model files looked into, newest versions first."""


@dataclass(slots=True)
class ModelCheck:
    text: str
    """config.pbtxt as checked; "" where there is none."""
    findings: list[Finding] = field(default_factory=list)
    config: pb.ModelConfig | None = None
    """What the text says; None where it does not parse."""
    effective: pb.ModelConfig | None = None
    """With everything filled in that the server would fill in."""
    origins: dict[str, str] = field(default_factory=dict)
    """Field path -> "file", "override", "model" or "default". A field without an entry has the
    origin of the nearest field around it."""
    signature: Signature | None = None
    """Of the newest served version; None where the file does not tell names, types and shapes."""
    file_signature: FileSignature | None = None
    """What its file tells at all: a TorchScript module or trees tell less than a signature."""
    versions: list[int] = field(default_factory=list)
    """What the version policy serves."""
    parsed: ParsedConfig | None = None
    """The text with the places of its fields; None where it could not be read."""


@dataclass(frozen=True, slots=True)
class _Terms:
    name: str
    gpu_count: int | None
    strict: bool
    text_origin: str = "file"
    config_file: str = CONFIG_NAME


def check_model(
    model_directory: Path,
    *,
    gpu_count: int | None = None,
    config_text: str | None = None,
    strict: bool = False,
    name: str | None = None,
    override: str | None = None,
    config_file: str = CONFIG_NAME,
) -> ModelCheck:
    """Check the model in `model_directory`.

    `gpu_count`: GPUs of the place where it will run, None where that is not known.
    `config_text` stands for config.pbtxt. `strict`: auto-complete is off. `name` stands for the
    directory's name, e.g. while the directory is staged elsewhere. `override` is the JSON config of
    a load request, which stands for the file; findings about it name fields, but no lines.
    `config_file` is the path of a variant of the config (REP-009).
    """
    terms = _Terms(name or model_directory.name, gpu_count, strict, config_file=config_file)
    if override is not None:
        return _check_override(model_directory, override, terms)
    return _check_text(model_directory, config_text, terms)


def _check_override(model_directory: Path, override: str, terms: _Terms) -> ModelCheck:
    try:
        text = to_pbtxt(from_json(override))
    except InvalidArgumentError as error:
        finding = Finding(Severity.ERROR, error.message, file="", code="REP-059")
        return ModelCheck("", [finding])
    check = _check_text(model_directory, text, replace(terms, text_origin="override"))
    check.findings = [
        replace(item, file="", line=0, column=0, repair=None)
        if item.file == "config.pbtxt"
        else item
        for item in check.findings
    ]
    return check


def _check_text(model_directory: Path, config_text: str | None, terms: _Terms) -> ModelCheck:
    scanned = scan_model(model_directory)
    findings = check_layout(scanned)
    if config_text is not None:
        findings = [item for item in findings if item.code != "REP-003"]
    text, problems = _text(scanned, config_text, terms.config_file)
    check = ModelCheck(text or "", findings + problems)
    if text is None:
        return check
    if terms.strict and config_text is None and scanned.config_path is None:
        check.findings.append(_missing_config())
    parsed = check.parsed = parse(text, file=terms.config_file)
    if parsed.config is None:
        check.findings += parsed.findings
        return check
    check.config = pb.ModelConfig()
    check.config.CopyFrom(parsed.config)
    _check_parsed(check, parsed, scanned, terms)
    return check


def _text(
    scanned: ModelDirectory, config_text: str | None, config_file: str
) -> tuple[str | None, list[Finding]]:
    if config_text is not None:
        return config_text, []
    if config_file == CONFIG_NAME and scanned.config_path is None:
        return "", []
    try:
        text, findings = read_text(scanned.path / config_file)
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return None, [Finding(Severity.ERROR, message, file=config_file, code="REP-003")]
    return text, [replace(item, file=config_file) for item in findings]


def _missing_config() -> Finding:
    return Finding(
        Severity.ERROR,
        "config.pbtxt is missing, and auto-complete is off",
        "write one, or switch auto-complete on",
        code="REP-003",
    )


def _check_parsed(
    check: ModelCheck,
    parsed: ParsedConfig,
    scanned: ModelDirectory,
    terms: _Terms,
) -> None:
    effective = check.effective = pb.ModelConfig()
    if parsed.config is not None:
        effective.CopyFrom(parsed.config)
    origins = dict.fromkeys(parsed.places, terms.text_origin)
    filled = fill_identity(effective, name=terms.name, model_directory=scanned.path)
    origins |= dict.fromkeys(filled, "default")
    check.versions = select_versions(effective.version_policy, scanned.versions)
    report = Report(parsed, effective, scanned.path)
    _check_policy(report, scanned, check)
    signatures = _check_files(report, scanned, check)
    check.file_signature = newest = next(iter(signatures.values()), None)
    if isinstance(newest, Signature):
        named = newest if newest.call_spec is None else with_ordinal_names(newest)
        if not terms.strict:
            taken = fill_from_signature(effective, named)
            origins |= dict.fromkeys(taken, "model")
        check.signature = (
            newest if newest.call_spec is None else named_as_configured(newest, effective)
        )
    elif isinstance(newest, TreeSignature):
        check.signature = tree_tensors(effective, newest)
        if check.signature is not None and not terms.strict:
            taken = fill_from_signature(effective, check.signature)
            origins |= dict.fromkeys(taken, "model")
    if effective.backend == "fil":
        check_tree_config(report, check.versions)
    elif effective.backend == "pytorch":
        check_torch_parameters(report)
    filled = complete(
        effective, name=terms.name, model_directory=scanned.path, gpu_count=terms.gpu_count or 0
    )
    check.origins = origins | dict.fromkeys(filled, "default")
    check.findings += validate(
        parsed,
        directory_name=terms.name,
        model_directory=scanned.path,
        strict=terms.strict,
        available=Available(terms.gpu_count),
        config=effective,
    )
    if check.signature is not None:
        check.findings = with_values_of_model(report, check.findings, check.signature)
    for file, signature in signatures.items():
        compare_with_config(report, signature, file)
    check.findings += _distinct(report.findings)


def _distinct(findings: list[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))


def _check_policy(report: Report, scanned: ModelDirectory, check: ModelCheck) -> None:
    policy = report.config.version_policy
    for version in missing_versions(policy, scanned.versions):
        report.warning(
            "version_policy.specific.versions",
            f"version {version} is listed and has no directory: it is skipped",
            f"versions on disk: {', '.join(map(str, scanned.versions)) or 'none'}",
            code="REP-042",
            edit=_unlisted(report, version),
        )
    lists_some = policy.WhichOneof("policy_choice") == "specific" and policy.specific.versions
    if lists_some and scanned.versions and not check.versions:
        report.error(
            "version_policy",
            "at least one version must be available: none of the listed versions is on disk",
            f"versions on disk: {', '.join(map(str, scanned.versions))}",
            code="REP-006",
        )


def _unlisted(report: Report, version: int) -> Edit | None:
    listed = list(report.config.version_policy.specific.versions)
    place = f"version_policy.specific.versions[{listed.index(version)}]"
    return report.mend.remove(place, f"Remove {version}") if len(set(listed)) > 1 else None


def _check_files(
    report: Report, scanned: ModelDirectory, check: ModelCheck
) -> dict[str, FileSignature]:
    """Model files of the served versions: are they there, and what do they say."""
    config = report.config
    known = expected_file(config)
    filename = config.default_model_filename or (known.filename if known else "")
    if known is None or not filename or escapes(filename) or config.cc_model_filenames:
        return {}
    newest = sorted(check.versions, reverse=True)
    missing = check_model_files(
        scanned,
        versions=newest,
        filename=filename,
        may_be_file=known.may_be_file,
        may_be_directory=known.may_be_directory,
    )
    report.findings += missing
    absent = {item.file for item in missing}
    signatures: dict[str, FileSignature] = {}
    for version in newest[:MAX_VERSIONS_READ]:
        file = f"{version}/{filename}"
        if file in absent:
            continue
        if known.backend == "python":
            report.findings += check_python_source(scanned.path / file, file)
            continue
        signature = read_signature(report, known, scanned.path / file, file)
        if signature is not None:
            signatures[file] = signature
    return signatures
