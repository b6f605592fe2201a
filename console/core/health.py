"""Answers for probes and Prometheus: alive, ready, and a few numbers of the console itself."""

from __future__ import annotations

import time

from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from console.core.workers import get_client, known

STARTED_AT = time.time()


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Database and Redis answer. Says which does not, never why: anybody may ask."""
    checks = {"database": _database(), "redis": _redis()}
    is_ready = all(checks.values())
    body = {name: "ok" if fine else "unavailable" for name, fine in checks.items()}
    return JsonResponse(body, status=200 if is_ready else 503)


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text; the workers' own /metrics have what Triton has."""
    infos, error = known()
    states: dict[str, int] = dict.fromkeys(("starting", "ready", "draining", "stopped", "lost"), 0)
    for info in infos:
        states[info.state] = states.get(info.state, 0) + 1
    served = {model.name for info in infos for model in info.models if model.state == "READY"}
    lines = [
        "# HELP conch_console_up_seconds Seconds since this web process started",
        "# TYPE conch_console_up_seconds gauge",
        f"conch_console_up_seconds {time.time() - STARTED_AT:.0f}",
        "# HELP conch_registry_up Whether the worker registry can be read",
        "# TYPE conch_registry_up gauge",
        f"conch_registry_up {0 if error else 1}",
        "# HELP conch_workers Workers by state",
        "# TYPE conch_workers gauge",
        *(f'conch_workers{{state="{name}"}} {count}' for name, count in sorted(states.items())),
        "# HELP conch_models_ready Models that at least one worker serves",
        "# TYPE conch_models_ready gauge",
        f"conch_models_ready {len(served)}",
    ]
    return HttpResponse("\n".join(lines) + "\n", content_type="text/plain; version=0.0.4")


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Exception:
        return False
    return True


def _redis() -> bool:
    try:
        get_client().workers()
    except Exception:
        return False
    return True
