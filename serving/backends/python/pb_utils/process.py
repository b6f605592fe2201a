"""Where the model's code runs: what its process lends it, and which part of its life it is in.

Set by the runner; read from any thread of the model.
"""

from __future__ import annotations

import enum

from serving.backends.child_services import ChildServices
from serving.backends.python.pb_utils.errors import TritonModelException


class Stage(enum.Enum):
    ALONE = "outside of a server"
    LOADING = "while it loads"
    RUNNING = "running"
    FINALIZING = "in finalize"


_child: ChildServices | None = None
_stage = Stage.ALONE


def enter(stage: Stage, services: ChildServices | None = None) -> None:
    global _child, _stage
    _stage = stage
    if services is not None:
        _child = services


def child() -> ChildServices:
    """Raises: TritonModelException outside of an instance process."""
    if _child is None:
        raise TritonModelException(
            "this needs the server: it works in initialize and execute, not in "
            "auto_complete_config nor in a process that the model has started itself"
        )
    return _child


def child_for_calls() -> ChildServices:
    if _stage is not Stage.RUNNING:
        raise TritonModelException("BLS is supported only during the 'execute' function.")
    return child()


def child_for_control() -> ChildServices:
    if _stage is Stage.FINALIZING:
        raise TritonModelException("models cannot be loaded or unloaded in finalize")
    return child()


def poll() -> None:
    """Take notice of cancellations that have come while the model was busy."""
    if _child is not None:
        _child.poll()
