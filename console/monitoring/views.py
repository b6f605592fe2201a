"""The overview and the live metrics page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from console.core import workers as door
from console.core.permissions import Role, require_role
from console.core.roles import role_of
from console.monitoring import glance
from console.monitoring.api import RANGES
from console.monitoring.overview import read_overview
from console.monitoring.selectors import has_sequences

DEFAULT_RANGE = "5m"


@require_GET
def home(request: HttpRequest) -> HttpResponseBase:
    """The overview; a person without a role lands on the own account, which says so."""
    if request.user.is_authenticated and role_of(request.user) is None:
        return redirect("accounts:account")
    return overview(request)


@require_role(Role.VIEWER)
def overview(request: HttpRequest) -> HttpResponse:
    page = read_overview()
    template = "monitoring/overview.html"
    if request.GET.get("part") == "live":
        template = "monitoring/overview_parts.html"
    return render(request, template, {"overview": page})


@require_GET
@require_role(Role.VIEWER)
def live(request: HttpRequest) -> HttpResponse:
    infos, _ = door.known()
    chosen_range = request.GET.get("range", DEFAULT_RANGE)
    model = request.GET.get("model", "")
    worker = request.GET.get("worker", "")
    models = {row.name for info in infos for row in info.models if row.state} | {model}
    workers = {info.worker_id for info in infos} | {worker}
    others = request.GET.copy()
    others.pop("model", None)
    # Where the name of a model in a legend leads to; nowhere once a model is chosen.
    alone = "" if model else f"?{others.urlencode()}{'&' if others else ''}model="
    context = {
        "filter": alone,
        "range": chosen_range if chosen_range in RANGES else DEFAULT_RANGE,
        "ranges": list(RANGES),
        "model": model,
        "worker": worker,
        "models": sorted(models - {""}),
        "workers": sorted(workers - {""}),
        "has_gpus": any(info.devices for info in infos),
        "has_sequences": has_sequences(model),
    }
    return render(request, "monitoring/live.html", context)


@require_GET
@require_role(Role.VIEWER)
def glance_at_all(request: HttpRequest) -> JsonResponse:
    """What the menu, the tab's title and its icon say, for pages that stay open."""
    return JsonResponse({"problems": glance.problem_count(), "counts": glance.menu_counts()})
