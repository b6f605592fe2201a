"""The page of backends, below /backends/."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from console.core import workers as door
from console.core.permissions import Role, require_role
from console.fleet.backends import worker_backends


@require_GET
@require_role(Role.VIEWER)
def backends(request: HttpRequest) -> HttpResponse:
    infos, _ = door.known()
    worker = request.GET.get("worker", "")
    only_used = request.GET.get("used") == "1"
    found = worker_backends(infos, worker=worker, only_used=only_used)
    context = {
        "found": found,
        "workers": [info.worker_id for info in infos if not info.is_gone],
        "worker": worker,
        "only_used": only_used,
        "total": sum(len(item.rows) for item in found),
        "installed": sum(item.installed_count for item in found),
    }
    part = request.GET.get("part") == "live"
    return render(request, "fleet/backend_parts.html" if part else "fleet/backends.html", context)
