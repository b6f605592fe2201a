"""Pages of deployments: history with filters, one deployment with its phases, roll back, retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from console.core.diff import diff_lines
from console.core.permissions import require_role
from console.deployments import selectors, services
from console.deployments.choices import Action, DeploymentState
from console.deployments.folding import fold
from console.deployments.models import Deployment
from serving.errors import NotFoundError, ServingError

PAGE_SIZE = 50
WHO = [("people", "people"), ("system", "system")]


@require_GET
@require_role("viewer")
def history(request: HttpRequest) -> HttpResponse:
    filters = selectors.Filters(
        search=request.GET.get("q", "").strip(),
        state=_known(request.GET.get("state", ""), [*DeploymentState.values, "open"]),
        action=_known(request.GET.get("action", ""), Action.values),
        who=_known(request.GET.get("who", ""), [value for value, _ in WHO]),
    )
    page = Paginator(selectors.deployments(filters), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "lines": fold(page),
        "filters": filters,
        "states": [("open", "Still open"), *DeploymentState.choices],
        "actions": Action.choices,
        "whos": WHO,
        "has_open": any(row.is_open for row in page),
        "is_filtered": filters != selectors.Filters(),
    }
    is_fragment = request.headers.get("HX-Target") == "deployments"
    template = "deployments/_history.html" if is_fragment else "deployments/list.html"
    return render(request, template, context)


def _known(value: str, choices: list[str]) -> str:
    return value if value in choices else ""


@require_GET
@require_role("viewer")
def detail(request: HttpRequest, deployment_id: int) -> HttpResponse:
    deployment = _deployment(deployment_id)
    is_fragment = request.headers.get("HX-Target") == "deployment"
    template = "deployments/_detail.html" if is_fragment else "deployments/detail.html"
    return render(request, template, _context(deployment))


def _deployment(deployment_id: int) -> Deployment:
    try:
        return selectors.get(deployment_id)
    except NotFoundError as error:
        raise Http404(str(error)) from error


def _context(deployment: Deployment) -> dict[str, Any]:
    before, after = deployment.previous_revision, deployment.revision
    diff = []
    if before is not None and after is not None and before.sha256 != after.sha256:
        diff = diff_lines(before.text, after.text, f"r{before.number}", f"r{after.number}")
    return {
        "deployment": deployment,
        "phases": selectors.phases(deployment),
        "targets": list(deployment.targets.all()),
        "diff": diff,
        "desired": selectors.desired_for(deployment.model),
        "served": selectors.serving_workers(deployment.model),
        "others": [
            row for row in selectors.deployments_for(deployment.model, 9) if row.pk != deployment.pk
        ][:8],
    }


@require_POST
@require_role("operator")
def rollback(request: HttpRequest, deployment_id: int) -> HttpResponse:
    old = _deployment(deployment_id)
    return _start(request, old, lambda: services.rollback(actor=request.user, deployment=old))


@require_POST
@require_role("operator")
def retry(request: HttpRequest, deployment_id: int) -> HttpResponse:
    old = _deployment(deployment_id)
    return _start(request, old, lambda: services.retry(actor=request.user, deployment=old))


def _start(request: HttpRequest, old: Deployment, deed: Callable[[], Deployment]) -> HttpResponse:
    """To the new deployment, or back to the old one with the reason."""
    try:
        return redirect(deed())
    except ServingError as error:
        messages.error(request, str(error))
        return redirect(old)
