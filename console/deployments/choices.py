"""Actions and states of deployments; words and shapes are in `core.choices`."""

from __future__ import annotations

from django.db import models


class Action(models.TextChoices):
    LOAD = "load", "Load"
    UNLOAD = "unload", "Unload"
    ROLLBACK = "rollback", "Roll back"


class Trigger(models.TextChoices):
    PERSON = "person", "A person"
    RECONCILER = "reconciler", "The reconciler"


class DeploymentState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    SUCCEEDED = "succeeded", "Done"
    FAILED = "failed", "Failed"
    """Expected: a worker said no, or is not there."""
    ERRORED = "errored", "Errored"
    """Unexpected: a fault in Conch, with its traceback."""


OPEN_STATES = (DeploymentState.QUEUED, DeploymentState.RUNNING)


class TargetState(models.TextChoices):
    SENT = "sent", "Sent"
    SUCCEEDED = "succeeded", "Done"
    FAILED = "failed", "Failed"
    """The worker answered with an error."""
    LOST = "lost", "Lost"
    """No answer: the worker is gone, was restarted, or the deadline passed."""


class WantedState(models.TextChoices):
    LOADED = "loaded", "Loaded"
    UNLOADED = "unloaded", "Unloaded"
