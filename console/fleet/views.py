"""Pages of the workers and their devices."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from console.core import audit
from console.core import workers as door
from console.core.permissions import Role, require_role
from console.fleet import selectors


@require_GET
@require_role(Role.VIEWER)
def workers(request: HttpRequest) -> HttpResponse:
    infos, _ = door.known()
    search = request.GET.get("q", "").strip()
    only_problems = request.GET.get("problems") == "1"
    rows = selectors.worker_rows(infos=infos, search=search, only_problems=only_problems)
    context = {
        "rows": rows,
        "total": len(infos),
        "connected": sum(1 for row in selectors.worker_rows(infos=infos) if row.state == "ready"),
        "search": search,
        "only_problems": only_problems,
        "has_gpus": any(row.devices for row in rows),
    }
    part = request.GET.get("part") == "live"
    return render(request, "fleet/worker_parts.html" if part else "fleet/workers.html", context)


@require_GET
@require_role(Role.VIEWER)
def worker(request: HttpRequest, worker_id: str) -> HttpResponse:
    row = selectors.worker_row(worker_id)
    if row is None:
        raise Http404(f"No worker is called {worker_id}. It may have been forgotten.")
    context = {
        "row": row,
        "models": selectors.models_of(row),
        "events": selectors.events_of(worker_id),
    }
    part = request.GET.get("part") == "live"
    return render(request, "fleet/worker_detail.html" if part else "fleet/worker.html", context)


@require_POST
@require_role(Role.OPERATOR)
def forget(request: HttpRequest, worker_id: str) -> HttpResponse:
    """Takes a worker that is gone off the list; a living one would be back with a heartbeat."""
    row = selectors.worker_row(worker_id)
    if row is None:
        raise Http404(f"No worker is called {worker_id}. It may have been forgotten.")
    if not row.info.is_gone:
        messages.error(request, f"{worker_id} is still connected: stop it first.")
        return redirect("fleet:worker", worker_id)
    door.get_client().forget(worker_id)
    audit.record(request.user, "forget worker", worker_id, {"last_seen": row.info.last_seen})
    messages.success(request, f"{worker_id} is forgotten. It is back if it ever starts again.")
    return redirect("fleet:workers")
