"""Pages that browse the repository, show and download files, delete and restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from console.core.permissions import require_role
from console.core.workers import served_versions
from console.repository import checks, selectors, services, staging
from console.repository.arrange import CONFIG_NAME
from console.repository.download import Download
from console.repository.models import TrashEntry
from serving.errors import NotFoundError, ServingError


@require_GET
@require_role("viewer")
def browse(request: HttpRequest, path: str = "") -> HttpResponseBase:
    """A folder as a table, a text file as text, or any file as a download."""
    try:
        found = selectors.resolve(path)
    except NotFoundError as error:
        raise Http404(str(error)) from error
    if found.is_dir() or not path.strip("/"):
        return _folder(request, path, found)
    if "download" in request.GET:
        return Download(found)
    if "sha256" in request.GET:
        digest = selectors.digest_of(path.strip("/"))
        return render(request, "repository/_digest.html", {"digest": digest})
    return _file(request, path.strip("/"), found)


def _folder(request: HttpRequest, path: str, found: Path) -> HttpResponse:
    listing = selectors.list_directory(path)
    model = listing.model
    findings = checks.as_rows(checks.check_directory(_model_root(model))) if model else []
    tree = selectors.models_on_disk()
    context = {
        "listing": listing,
        "tree": tree,
        "versions_of": {item.name: item.versions for item in tree},
        "findings": findings,
        "config_findings": [row for row in findings if row["file"] == CONFIG_NAME],
        "by_file": _by_file(findings, listing.path, model),
        "config_entry": _config_beside(listing),
        "trash": selectors.trash_for(model) if model else selectors.trash(),
        "served": _served(model),
        "uploads": selectors.open_uploads() if not model else [],
        "config_name": CONFIG_NAME,
    }
    return render(request, "repository/browse.html", context)


def _model_root(model: str) -> Path:
    return staging.repository_root() / model


def _by_file(
    findings: list[dict[str, Any]], folder: str, model: str
) -> dict[str, list[dict[str, Any]]]:
    """Name in the listed folder -> findings about it (or about something below it)."""
    inside = folder.removeprefix(model).strip("/")
    result: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        file = finding["file"]
        if inside and not file.startswith(f"{inside}/"):
            continue
        name = file.removeprefix(inside).strip("/").split("/")[0]
        if name:
            result.setdefault(name, []).append(finding)
    return result


def _config_beside(listing: selectors.Listing) -> selectors.Entry | None:
    """The model's config, shown beside the files of a version."""
    if not listing.version:
        return None
    path = _model_root(listing.model) / CONFIG_NAME
    return selectors.entry_for(path, listing.model) if path.is_file() else None


def _served(model: str) -> list[str]:
    return served_versions(model) if model else []


def _file(request: HttpRequest, path: str, found: Path) -> HttpResponse:
    parent = path.rpartition("/")[0]
    context = {
        "listing": selectors.Listing(path),
        "entry": selectors.entry_for(found, parent),
        "parent": parent,
        "text": selectors.read_text(path),
        "tree": selectors.models_on_disk(),
        "is_config": path.count("/") == 1 and found.name == CONFIG_NAME,
    }
    return render(request, "repository/file.html", context)


@require_POST
@require_role("admin")
def delete_version(request: HttpRequest, model: str, version: int) -> HttpResponse:
    done = _attempt(
        request,
        lambda: services.delete_version(actor=request.user, model=model, version=version),
        f"Version {version} of {model} is in the trash.",
    )
    return _back(request, model if done else f"{model}/{version}")


@require_POST
@require_role("admin")
def delete_model(request: HttpRequest, model: str) -> HttpResponse:
    if request.POST.get("confirm", "").strip() != model:
        messages.error(request, f"Type the model's name, {model}, to delete its files.")
        return redirect(browse_url(model))
    done = _attempt(
        request,
        lambda: services.delete_model(actor=request.user, model=model),
        f"{model} is in the trash.",
    )
    return redirect(browse_url("" if done else model))


@require_POST
@require_role("admin")
def restore(request: HttpRequest, entry_id: int) -> HttpResponse:
    entry = TrashEntry.objects.filter(pk=entry_id).first()
    if entry is None:
        raise Http404(f"The trash has no entry {entry_id} any more.")
    _attempt(
        request,
        lambda: services.restore_deleted(actor=request.user, entry=entry),
        f"{entry} is back in the repository.",
    )
    return redirect(browse_url(entry.model if selectors.model_exists(entry.model) else ""))


def _attempt(request: HttpRequest, deed: Callable[[], object], done: str) -> bool:
    try:
        deed()
    except ServingError as error:
        messages.error(request, str(error))
        return False
    messages.success(request, done)
    return True


def browse_url(path: str) -> str:
    """The page of a folder of the repository; the root without one."""
    return reverse("repository:browse", args=[path] if path else [])


def _back(request: HttpRequest, path: str) -> HttpResponse:
    """To the page that asked, when it is one of ours."""
    target = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        return redirect(target)
    return redirect(browse_url(path))
