"""Checks an ensemble against the models that lie beside it in its repository.

Reads the configs of the parts, runs nothing; any thread, blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from serving.config.check import ModelCheck, check_model
from serving.config.findings import errors_of
from serving.config.protobuf import pb
from serving.config.validate_graph import is_ensemble, validate_ensemble_graph

MAX_PARTS = 200
"""Models looked into for one ensemble, those of its inner ensembles included."""


def check_parts(check: ModelCheck, name: str, repository: Path) -> None:
    """Add to `check`, of the model `name`, what its parts in `repository` make wrong."""
    if check.effective is None or not is_ensemble(check.effective):
        return
    checks = {name: check}
    pending = _called(check.effective)
    while pending and len(checks) < MAX_PARTS:
        part = pending.pop()
        # A name comes out of a config: only an entry of the repository itself is a model.
        if part in checks or Path(part).name != part or not (repository / part).is_dir():
            continue
        checks[part] = check_model(repository / part)
        effective = checks[part].effective
        if effective is not None:
            pending |= _called(effective)
    add_graph_findings(checks, only=name)


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
