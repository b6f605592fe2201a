"""The Config tab: editor, live check, save with lost-update protection, revisions."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.catalog import config_view
from console.catalog.forms import ConfigForm
from console.catalog.saved import saved_text, view_of_saved
from console.catalog.tabs import page
from console.core.config_schema import completion_schema
from console.core.diff import diff_lines
from console.core.permissions import Role, check_role, has_role, require_role
from console.repository import selectors as repository_selectors
from console.repository import services as repository
from console.repository.errors import LostUpdateError, RefusedError
from serving.errors import NotFoundError, ServingError

REVISIONS_SHOWN = 30
# The largest number that the column of revision numbers holds.
MAX_REVISION = 2**31 - 1


def base_url(request: HttpRequest) -> str:
    """The console's address as this person reached it."""
    return request.build_absolute_uri("/").rstrip("/")


def _context(
    request: HttpRequest, name: str, form_text: str | None = None, **extra: Any
) -> dict[str, Any]:
    context = page(name, "config")
    directory = context["header"].directory
    if directory is None:
        return {**context, **extra}
    saved = saved_text(directory)
    text = saved if form_text is None else form_text
    context |= {
        "view": config_view.inspect(
            directory.path, text=text, saved=saved or "", base_url=base_url(request)
        ),
        "has_file": saved is not None,
        "expected_sha256": repository.config_sha256(saved),
        "schema": completion_schema(),
        "revisions": repository_selectors.revisions_for(name)[:REVISIONS_SHOWN],
    }
    return {**context, **extra}


@require_http_methods(["GET", "POST"])
@require_role(Role.VIEWER)
def config(request: HttpRequest, name: str) -> HttpResponse:
    if request.method == "POST":
        check_role(request.user, Role.OPERATOR)
        return _save(request, name)
    context = _context(request, name)
    context["can_edit"] = has_role(request.user, Role.OPERATOR)
    return _render(request, context)


def _render(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    context.setdefault("can_edit", True)
    return render(request, "catalog/config.html", context, status=status)


def _save(request: HttpRequest, name: str) -> HttpResponse:
    form = ConfigForm(request.POST)
    if not form.is_valid():
        messages.error(request, f"The text was not saved. {form.problem}")
        return redirect("catalog:config", name)
    must_load = request.POST.get("action") == "save_load"
    text = form.cleaned_data["text"]
    try:
        saved = repository.save_config(
            actor=request.user,
            model=name,
            text=text,
            load=must_load,
            expected_sha256=form.cleaned_data["expected_sha256"] or None,
        )
    except LostUpdateError as error:
        return _conflict(request, name, text, error)
    except RefusedError as error:
        context = _context(request, name, text, refused=str(error))
        context["expected_sha256"] = form.cleaned_data["expected_sha256"]
        return _render(request, context, status=422)
    except NotFoundError as error:
        raise Http404(str(error)) from error
    number = saved.revision.number
    done = f"Saved as revision {number}" + (" and being loaded." if must_load else ".")
    messages.success(request, done)
    if saved.deployment is not None:
        return redirect("deployments:detail", saved.deployment.pk)
    return redirect("catalog:config", name)


def _conflict(request: HttpRequest, name: str, text: str, error: LostUpdateError) -> HttpResponse:
    """Nothing typed is lost: both texts, their difference, and the choice."""
    context = page(name, "config")
    context |= {
        "text": text,
        "current_text": error.current_text,
        "current_sha256": error.current_sha256,
        "diff": diff_lines(error.current_text, text, "now", "yours"),
        "message": str(error),
    }
    return render(request, "catalog/config_conflict.html", context, status=409)


@require_POST
@require_role(Role.VIEWER)
def check(request: HttpRequest, name: str) -> HttpResponse:
    """The panels that depend on the text, for what is in the editor now."""
    form = ConfigForm(request.POST)
    if not form.is_valid():
        return HttpResponse(form.problem, status=400, content_type="text/plain; charset=utf-8")
    context = _context(request, name, form.cleaned_data["text"])
    context["can_edit"] = has_role(request.user, Role.OPERATOR)
    return render(request, "catalog/_config_panels.html", context)


@require_http_methods(["GET", "POST"])
@require_role(Role.VIEWER)
def revision(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """One revision beside the text that is on disk; a POST writes it back."""
    if number > MAX_REVISION:
        raise Http404(f"'{name}' has no config revision r{number}.")
    try:
        chosen = repository_selectors.get_revision(name, number)
    except NotFoundError as error:
        raise Http404(str(error)) from error
    if request.method == "POST":
        check_role(request.user, Role.OPERATOR)
        return _restore(request, name, chosen.number, chosen.text)
    context = page(name, "config")
    directory = context["header"].directory
    saved = (saved_text(directory) if directory else None) or ""
    context |= {
        "revision": chosen,
        "diff": diff_lines(saved, chosen.text, "now", f"revision {number}"),
        "expected_sha256": repository.config_sha256(saved),
        "back": reverse("catalog:config", args=[name]),
    }
    return render(request, "catalog/revision.html", context)


def _restore(request: HttpRequest, name: str, number: int, text: str) -> HttpResponse:
    try:
        saved = repository.save_config(
            actor=request.user,
            model=name,
            text=text,
            load=request.POST.get("action") == "save_load",
            expected_sha256=request.POST.get("expected_sha256") or None,
            reason=f"Restored revision {number}",
        )
    except ServingError as error:
        messages.error(request, str(error))
        return redirect("catalog:revision", name, number)
    messages.success(
        request, f"Revision {number} is the config again, as revision {saved.revision.number}."
    )
    if saved.deployment is not None:
        return redirect("deployments:detail", saved.deployment.pk)
    return redirect("catalog:config", name)


@require_GET
@require_role(Role.VIEWER)
def download(request: HttpRequest, name: str) -> HttpResponse:
    """The effective config as text: what Triton users convert by hand."""
    context = page(name, "config")
    directory = context["header"].directory
    if directory is None:
        raise Http404(f"The repository has no files of '{name}'.")
    view, effective = view_of_saved(directory)
    if effective is None:
        raise Http404("The config has errors: there is no effective config.")
    response = HttpResponse(view.effective_text, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="config.pbtxt"'
    return response
