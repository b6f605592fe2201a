"""Checks an ensemble against the models that lie beside it in its repository, and a model against
the ensembles there that call it.

Reads the configs of the others, runs nothing; any thread, blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from serving.config.check import ModelCheck, check_model
from serving.config.findings import Finding, Severity, errors_of
from serving.config.protobuf import pb
from serving.config.validate_graph import is_ensemble, validate_ensemble_graph

MAX_PARTS = 200
"""Models looked into for one ensemble, those of its inner ensembles included."""
MAX_USERS = 50
"""Ensembles over one model that are looked into."""
_ABOUT_PARTS_ALONE = ("VAL-70", "VAL-71")


def check_parts(
    check: ModelCheck, name: str, repository: Path, *, parts_may_come: bool = False
) -> None:
    """Add to `check`, of the model `name`, what its parts in `repository` make wrong.

    `parts_may_come`: a part that is not there, or not sound, is a warning; it may be mended later.
    """
    if check.effective is None or not is_ensemble(check.effective):
        return
    before = len(check.findings)
    add_graph_findings(_with_parts(check, name, repository), only=name)
    if parts_may_come:
        check.findings[before:] = [
            replace(item, severity=Severity.WARNING) if item.code in _ABOUT_PARTS_ALONE else item
            for item in check.findings[before:]
        ]


def check_users(check: ModelCheck, name: str, repository: Path) -> None:
    """Warn in `check`, of the model `name`, of ensembles in `repository` that would not fit to it.

    What is wrong with an ensemble in any case is not told here, nor what comes of the versions
    that `check` knows, which need not be all.
    """
    if check.effective is None:
        return
    for directory in _users(name, repository)[:MAX_USERS]:
        user = check_model(directory)
        if user.effective is None or name not in _called(user.effective) or directory.name == name:
            continue
        before = _with_parts(replace(user), directory.name, repository)
        known = {item.message for item in _graph_errors(before, directory.name)}
        now = _with_parts(user, directory.name, repository, known={name: check})
        check.findings += [
            Finding(
                Severity.WARNING,
                f"ensemble '{directory.name}' calls this model and would not load any more: "
                f"{item.message}",
                item.hint,
                code=item.code,
            )
            for item in _graph_errors(now, directory.name)
            if item.message not in known and item.code not in _ABOUT_PARTS_ALONE
        ]


def _users(name: str, repository: Path) -> list[Path]:
    """Directories of models whose config names the model; most are seen at a glance not to."""
    found = []
    for path in sorted(repository.glob("*/config.pbtxt")):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if b"ensemble" in text and name.encode() in text:
            found.append(path.parent)
    return found


def _graph_errors(checks: dict[str, ModelCheck], name: str) -> list[Finding]:
    checks[name].findings = []
    add_graph_findings(checks, only=name)
    return errors_of(checks[name].findings)


def _with_parts(
    check: ModelCheck, name: str, repository: Path, *, known: dict[str, ModelCheck] | None = None
) -> dict[str, ModelCheck]:
    """The ensemble and all models it is made of, as far as they are in `known` or `repository`."""
    checks = {name: check}
    assert check.effective is not None
    pending = _called(check.effective)
    while pending and len(checks) < MAX_PARTS:
        part = pending.pop()
        # A name comes out of a config: only an entry of the repository itself is a model.
        if part in checks or Path(part).name != part:
            continue
        if known and part in known:
            checks[part] = known[part]
        elif (repository / part).is_dir():
            checks[part] = check_model(repository / part)
        else:
            continue
        effective = checks[part].effective
        if effective is not None:
            pending |= _called(effective)
    return checks


def _called(config: pb.ModelConfig) -> set[str]:
    return {step.model_name for step in config.ensemble_scheduling.step}


def add_graph_findings(checks: dict[str, ModelCheck], *, only: str = "") -> None:
    """Rules between the given models (name -> check), added to the checks of the ensembles."""
    configs: dict[str, pb.ModelConfig] = {}
    for name, check in checks.items():
        if check.effective is not None:
            configs[name] = check.effective
    unavailable = _broken((name for name in checks if name != only), checks)
    versions = {name: check.versions for name, check in checks.items()}
    found = validate_ensemble_graph(configs, unavailable=unavailable, versions=versions)
    for name, findings in found.items():
        check = checks[name]
        if only in ("", name) and check.parsed is not None:
            check.findings += [check.parsed.placed(item) for item in findings]


def _broken(names: Iterable[str], checks: dict[str, ModelCheck]) -> set[str]:
    return {name for name in names if errors_of(checks[name].findings)}
