"""The Try it tab: a page for the browser's script, and the labels of an output."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from console.catalog import try_it
from console.catalog.descriptions import describe_somewhere
from console.catalog.saved import view_of_saved
from console.catalog.tabs import page
from console.core.permissions import Role, has_role, require_role
from serving.config import json_form
from serving.errors import NotFoundError

ANY_VERSION = ""


@require_GET
@require_role(Role.VIEWER)
def try_model(request: HttpRequest, name: str) -> HttpResponse:
    """With `?form` the general form is shown although the model has a view of its own."""
    context = page(name, "try")
    header = context["header"]
    described, problems = describe_somewhere(header)
    context |= {"problems": problems, "may_infer": has_role(request.user, Role.OPERATOR)}
    if described is not None:
        special = try_it.view_of(described.config, described.metadata)
        context |= {
            "model": try_it.description(name, described.metadata, described.config),
            "special": special,
            "view": try_it.FORM if "form" in request.GET else special or try_it.FORM,
            "versions": header.row.observed.served_versions,
            "version": request.GET.get("version", ANY_VERSION),
        }
    return render(request, "catalog/try_it.html", context)


@require_GET
@require_role(Role.VIEWER)
def labels(request: HttpRequest, name: str) -> HttpResponse:
    """The label file of `?output=` as JSON."""
    directory = page(name, "try")["header"].directory
    if directory is None:
        raise Http404(f"The repository has no files of '{name}'.")
    _, effective = view_of_saved(directory)
    if effective is None:
        raise Http404("The config has errors: its outputs are not known.")
    try:
        found = try_it.labels(
            directory.path, json_form.to_json(effective), request.GET.get("output", "")
        )
    except NotFoundError as error:
        return JsonResponse({"error": str(error)}, status=404)
    return JsonResponse({"labels": found})
