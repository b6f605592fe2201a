"""Models list and the read-only tabs of a model: Summary, Statistics, History."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.catalog import selectors, statistics
from console.catalog.actions import attempt
from console.catalog.descriptions import describe_everywhere
from console.catalog.filters import ModelFilters
from console.catalog.policy import in_words
from console.catalog.saved import view_of_saved
from console.catalog.signature import scheduler_words, tensors
from console.catalog.steps import steps_of, users_of
from console.catalog.tabs import page
from console.core import audit
from console.core.permissions import Role, check_role, require_role
from console.deployments import selectors as deployment_selectors
from console.deployments import services as deployments
from serving.errors import NotFoundError, ServingError

HISTORY_LENGTH = 50
REFUSALS_SHOWN = 5


@require_http_methods(["GET", "POST"])
@require_role(Role.VIEWER)
def models(request: HttpRequest) -> HttpResponse:
    """The list; a POST loads or unloads the chosen models."""
    if request.method == "POST":
        check_role(request.user, Role.OPERATOR)
        return _bulk(request)
    filters = ModelFilters.of(request.GET)
    context = {
        "filters": filters,
        "list": selectors.model_list(filters),
        "state_choices": selectors.state_choices(),
    }
    is_fragment = bool(getattr(request, "htmx", False))
    template = "catalog/_models.html" if is_fragment else "catalog/models.html"
    return render(request, template, context)


def _bulk(request: HttpRequest) -> HttpResponse:
    names = request.POST.getlist("model")
    action = request.POST.get("action", "")
    query = request.GET.urlencode()
    back = redirect(reverse("catalog:models") + (f"?{query}" if query else ""))
    if action not in ("load", "unload") or not names:
        attempt(request, _nothing_chosen, "")
        return back
    deed = deployments.load_model if action == "load" else deployments.unload_model
    asked, refused = [], []
    for name in names:
        try:
            deed(actor=request.user, model=name)
            asked.append(name)
        except ServingError as error:
            refused.append(str(error))
    _tell(request, f"{action.capitalize()}ing", asked, refused)
    return back


def _tell(request: HttpRequest, doing: str, asked: list[str], refused: list[str]) -> None:
    """One message for all that will be done, one for each refusal as long as they are few."""
    if asked:
        what = asked[0] if len(asked) == 1 else f"{len(asked)} models"
        messages.success(request, f"{doing} {what} was asked for. The list shows how it goes.")
    for reason in refused[:REFUSALS_SHOWN]:
        messages.error(request, reason)
    if len(refused) > REFUSALS_SHOWN:
        messages.error(request, f"{len(refused) - REFUSALS_SHOWN} more were refused.")


def _nothing_chosen() -> None:
    raise NotFoundError("No model was chosen: tick at least one in the list.")


@require_GET
@require_role(Role.VIEWER)
def model(request: HttpRequest, name: str) -> HttpResponse:
    """Summary: what it is, what it takes and gives, where it runs."""
    context = page(name, "model")
    context["steps"] = steps_of(context["header"])
    context["users"] = users_of(context["family"])
    directory = context["header"].directory
    if directory is not None:
        view, config = view_of_saved(directory)
        context |= {
            "view": view,
            "config": config,
            "tensors": tensors(config) if config is not None else [],
            "scheduler": scheduler_words(config) if config is not None else "",
            "policy_words": in_words(config.version_policy) if config is not None else "",
        }
    return render(request, "catalog/summary.html", context)


@require_POST
@require_role(Role.OPERATOR)
def load(request: HttpRequest, name: str) -> HttpResponse:
    worker_ids = request.POST.getlist("worker") or None
    attempt(
        request,
        lambda: deployments.load_model(actor=request.user, model=name, worker_ids=worker_ids),
        f"{name} is being loaded. If it serves already, that goes on until the new copy is warm.",
    )
    return redirect("catalog:model", name)


@require_POST
@require_role(Role.OPERATOR)
def unload(request: HttpRequest, name: str) -> HttpResponse:
    dependents = request.POST.get("unload_dependents") == "on"
    attempt(
        request,
        lambda: deployments.unload_model(
            actor=request.user, model=name, unload_dependents=dependents
        ),
        f"{name} is being unloaded. Waiting requests are finished first.",
    )
    return redirect("catalog:model", name)


@require_GET
@require_role(Role.VIEWER)
def model_statistics(request: HttpRequest, name: str) -> HttpResponse:
    context = page(name, "statistics")
    descriptions, problems = describe_everywhere(context["header"])
    bodies = {worker: item.statistics for worker, item in descriptions.items()}
    context |= {
        "problems": problems,
        "total": statistics.together(bodies.values()) if bodies else None,
        "rows": [
            row for worker, body in bodies.items() for row in statistics.of_worker(worker, body)
        ],
    }
    return render(request, "catalog/statistics.html", context)


@require_GET
@require_role(Role.VIEWER)
def history(request: HttpRequest, name: str) -> HttpResponse:
    context = page(name, "history")
    entries = [
        entry
        for entry in audit.entries(search=name)[: 4 * HISTORY_LENGTH]
        if entry.target == name or entry.target.startswith(f"{name}/")
    ]
    context |= {
        "deployments": deployment_selectors.deployments_for(name, HISTORY_LENGTH),
        "entries": entries[:HISTORY_LENGTH],
    }
    return render(request, "catalog/history.html", context)
