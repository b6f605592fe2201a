"""What a roll back puts back: the config text and the versions that were served.

Called by `services.rollback` before its transaction; the file is written under the model's lock.
"""

from __future__ import annotations

from typing import Any

from console.deployments.models import Deployment
from console.repository import configs, selectors
from console.repository.choices import RevisionSource
from console.repository.models import ConfigRevision
from serving.config import pbtxt
from serving.repository.version_policy import select_versions


def restore_config(*, actor: Any, deployment: Deployment) -> ConfigRevision:
    """Write the config that was in force before `deployment`, as a new revision."""
    model, old = deployment.model, deployment.previous_revision
    if old is None:
        return configs.current_revision(model)
    text = None if old.is_absent else old.text
    with configs.model_lock(model):
        if configs.read_config(model) != text:
            configs.write_config(model, text)
    return configs.record_revision(
        model,
        text,
        actor=actor,
        source=RevisionSource.ROLLBACK,
        reason=f"Config of r{old.number}, undoing deployment {deployment.pk}",
    )


def versions_to_restore(deployment: Deployment) -> list[int] | None:
    """The versions to pin, or None when the version policy chooses just them.

    A version that was published since stays on disk; the policy alone would choose it again.
    """
    served = sorted(int(item) for item in deployment.previous_versions)
    if not served or served == versions_by_policy(deployment.model):
        return None
    return served


def versions_by_policy(model: str) -> list[int]:
    """What the version policy on disk chooses now; empty when the config does not parse."""
    if not selectors.model_exists(model):
        return []
    parsed = pbtxt.parse(configs.read_config(model) or "")
    if parsed.config is None:
        return []
    available = selectors.versions_on_disk(model)
    return select_versions(parsed.config.version_policy, available)
