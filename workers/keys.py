"""Names and bounds of everything that workers keep in Redis. Shared by both sides of the wire."""

from __future__ import annotations

WORKERS = "conch:workers"
"""Hash worker id -> last WorkerInfo, kept when the worker is gone, so that it shows as lost."""

TELEMETRY = "conch:telemetry"
EVENTS = "conch:events"
TELEMETRY_LENGTH = 4000
EVENTS_LENGTH = 2000
DATA = "data"
"""The one field of a stream entry: the message as JSON."""

HEARTBEAT_S = 2.0
LIFETIME_S = 10
OPERATION_LIFETIME_S = 24 * 3600
REPLY_LIFETIME_S = 60


def worker(worker_id: str) -> str:
    """WorkerInfo; exists while the worker lives."""
    return f"conch:worker:{worker_id}"


def operation(operation_id: str) -> str:
    """OperationResult."""
    return f"conch:operation:{operation_id}"


def engine(build_id: str) -> str:
    """EngineProgress."""
    return f"conch:engine:{build_id}"


def reply(reply_id: str) -> str:
    """List with one Reply, for a caller that waits."""
    return f"conch:reply:{reply_id}"
