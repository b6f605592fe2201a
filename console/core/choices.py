"""The one vocabulary of states: each has a word, a shape and a tone, never a colour alone."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models

READY = "ready"
LOADING = "loading"
UNLOADING = "unloading"
UNAVAILABLE = "unavailable"
WARNING = "warning"
NOT_SERVED = "not_served"
LOST = "lost"
UNKNOWN = "unknown"
STOPPED = "stopped"


class ModelState(models.TextChoices):
    READY = READY, "Ready"
    LOADING = LOADING, "Loading"
    UNLOADING = UNLOADING, "Unloading"
    UNAVAILABLE = UNAVAILABLE, "Unavailable"
    WARNING = WARNING, "Warning"
    NOT_SERVED = NOT_SERVED, "Not served"
    LOST = LOST, "Lost"
    UNKNOWN = UNKNOWN, "Unknown"


@dataclass(frozen=True, slots=True)
class StateLook:
    """How one state is written and drawn."""

    word: str
    shape: str
    """dot, ring, circle, triangle or diamond: ● ◌ ○ ▲ ◆"""
    tone: str
    """ok, busy, off, bad or warn: the CSS class is `state--<tone>`."""


STATES: dict[str, StateLook] = {
    # models and versions
    READY: StateLook("Ready", "dot", "ok"),
    LOADING: StateLook("Loading", "ring", "busy"),
    UNLOADING: StateLook("Unloading", "ring", "busy"),
    UNAVAILABLE: StateLook("Unavailable", "triangle", "bad"),
    WARNING: StateLook("Warning", "diamond", "warn"),
    NOT_SERVED: StateLook("Not served", "circle", "off"),
    LOST: StateLook("Lost", "triangle", "bad"),
    UNKNOWN: StateLook("Unknown", "diamond", "warn"),
    # workers
    "starting": StateLook("Starting", "ring", "busy"),
    "draining": StateLook("Draining", "ring", "busy"),
    STOPPED: StateLook("Stopped", "circle", "off"),
    # operations, deployments, uploads
    "pending": StateLook("Waiting", "circle", "off"),
    "queued": StateLook("Queued", "circle", "off"),
    "running": StateLook("Running", "ring", "busy"),
    "checking": StateLook("Checking", "ring", "busy"),
    "checked": StateLook("Checked", "dot", "ok"),
    "publishing": StateLook("Publishing", "ring", "busy"),
    "published": StateLook("Published", "dot", "ok"),
    "live": StateLook("Live", "dot", "ok"),
    "done": StateLook("Done", "dot", "ok"),
    "succeeded": StateLook("Done", "dot", "ok"),
    "failed": StateLook("Failed", "triangle", "bad"),
    "errored": StateLook("Errored", "triangle", "bad"),
    "timed_out": StateLook("Timed out", "triangle", "bad"),
    "cancelled": StateLook("Cancelled", "circle", "off"),
    "superseded": StateLook("Superseded", "circle", "off"),
    "discarded": StateLook("Discarded", "circle", "off"),
    "rolled_back": StateLook("Rolled back", "circle", "off"),
    # findings
    "error": StateLook("Error", "triangle", "bad"),
    "note": StateLook("Note", "circle", "off"),
    "ok": StateLook("OK", "dot", "ok"),
    # people and tokens
    "active": StateLook("Active", "dot", "ok"),
    "inactive": StateLook("Inactive", "circle", "off"),
    "expired": StateLook("Expired", "circle", "off"),
}


def state_look(value: str) -> StateLook:
    """The look of a state; a value nobody registered is shown as it is, as a warning."""
    look = STATES.get(value.lower())
    if look is None:
        return StateLook(value.replace("_", " ").capitalize() or "Unknown", "diamond", "warn")
    return look


def model_state(index_state: str) -> str:
    """A worker's repository-index state (READY, ..., or empty) in this vocabulary."""
    return index_state.lower() if index_state else NOT_SERVED
