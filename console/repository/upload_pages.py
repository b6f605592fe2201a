"""Pages of an upload: choose files, see the checks, mend, publish, load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.core.config_schema import completion_schema
from console.core.diff import diff_lines
from console.core.permissions import require_role
from console.repository import configs, selectors, services, staging
from console.repository.choices import UploadState
from console.repository.errors import LostUpdateError, PublishConflictError, RefusedError
from console.repository.forms import UploadForm, WishForm
from console.repository.models import Upload
from console.repository.preview import ConfigPreview, preview, steps_of
from serving.errors import NotFoundError, ServingError


@require_http_methods(["GET", "POST"])
@require_role("operator")
def upload(request: HttpRequest) -> HttpResponse:
    form = UploadForm(request.POST or None, initial=_initial(request))
    if request.method == "POST" and form.is_valid():
        try:
            staged = services.stage_upload(
                actor=request.user,
                files=_files_of(request),
                model=form.cleaned_data["model"],
                version=form.cleaned_data["version"],
            )
        except RefusedError as error:
            _add_errors(form, error)
        else:
            return redirect(staged)
    status = 400 if form.errors else 200
    context = {
        "form": form,
        "uploads": selectors.recent_uploads(8),
        "steps": steps_of(None),
    }
    return render(request, "repository/upload.html", context, status=status)


def _initial(request: HttpRequest) -> dict[str, str]:
    return {"model": request.GET.get("model", ""), "version": request.GET.get("version", "")}


def _files_of(request: HttpRequest) -> list[tuple[str, Any]]:
    """(relative path, file): a folder's paths come in fields of their own, in the same order."""
    files = request.FILES.getlist("files")
    paths = request.POST.getlist("paths")
    if paths and len(paths) != len(files):
        raise RefusedError(f"{len(files)} files came with {len(paths)} paths; send one for each.")
    names = paths or [file.name or "" for file in files]
    return list(zip(names, files, strict=True))


def _add_errors(form: UploadForm, error: RefusedError) -> None:
    """Refusals of the services on the fields they are about."""
    placed = False
    for name, texts in error.fields.items():
        if name in form.fields:
            form.add_error(name, texts)
            placed = True
    if not placed:
        form.add_error(None, str(error))


@require_GET
@require_role("viewer")
def upload_detail(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    found = _upload(upload_id)
    context = _detail_context(found)
    if request.headers.get("HX-Request"):
        response = render(request, "repository/_upload_progress.html", context)
        if found.state != UploadState.CHECKING:
            response["HX-Refresh"] = "true"
        return response
    return render(request, "repository/upload_detail.html", context)


def _upload(upload_id: UUID) -> Upload:
    try:
        return selectors.get_upload(upload_id)
    except NotFoundError as error:
        raise Http404(str(error)) from error


def _detail_context(
    found: Upload, *, text: str | None = None, refused: str = "", form: WishForm | None = None
) -> dict[str, Any]:
    view: ConfigPreview = preview(found, text)
    taken = selectors.versions_on_disk(found.model) if found.model else []
    return {
        "upload": found,
        "view": view,
        "schema": completion_schema(),
        "steps": steps_of(found),
        "refused": refused,
        "form": form or WishForm.about(found),
        "expected_sha256": staging.text_sha256(found.config_text),
        "diff": diff_lines(view.current or "", view.text, "repository", "upload"),
        "taken": taken,
        "has_conflict": bool(set(taken) & set(found.versions)),
        "next_version": max(taken, default=0) + 1,
        "is_new_model": not selectors.model_exists(found.model),
        "deployments": list(found.deployments.all()),
        "total_bytes": sum(entry["bytes"] for entry in found.manifest.values()),
    }


@require_POST
@require_role("operator")
def upload_config(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    """Save a config text in staging; what the rules find is shown on the page that follows."""
    found = _upload(upload_id)
    text = configs.form_text(request.POST.get("text", ""))
    try:
        services.edit_config(
            actor=request.user,
            upload=found,
            text=text,
            expected_sha256=request.POST.get("expected_sha256"),
        )
    except (LostUpdateError, RefusedError) as error:
        context = _detail_context(found, text=text, refused=str(error))
        status = 409 if isinstance(error, LostUpdateError) else 400
        return render(request, "repository/upload_detail.html", context, status=status)
    if found.error_count:
        messages.warning(request, "Saved. There are errors left to mend.")
    else:
        messages.success(request, "Saved: no errors left.")
    return redirect(found)


@require_POST
@require_role("viewer")
def upload_check(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    """Findings for a text that is being typed; nothing is saved."""
    found = _upload(upload_id)
    text = configs.form_text(request.POST.get("text", ""))
    if len(text) > configs.MAX_CONFIG_BYTES:
        return HttpResponse("The text is too long.", status=400, content_type="text/plain")
    context = {"view": preview(found, text), "upload": found}
    return render(request, "repository/_upload_findings.html", context)


@require_POST
@require_role("operator")
def upload_wish(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    found = _upload(upload_id)
    form = WishForm(request.POST)
    if not form.is_valid():
        context = _detail_context(found, form=form)
        return render(request, "repository/upload_detail.html", context, status=400)
    _attempt(
        request,
        lambda: services.change_wish(
            actor=request.user,
            upload=found,
            model=form.cleaned_data["model"],
            version=form.cleaned_data["version"],
        ),
        "Checked again with the new name and version.",
    )
    return redirect(found)


@require_POST
@require_role("operator")
def upload_publish(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    found = _upload(upload_id)
    load = request.POST.get("action") == "publish_load"
    try:
        deployment = services.publish(actor=request.user, upload=found, load=load)
    except PublishConflictError as error:
        messages.error(request, str(error))
        return redirect(found)
    except ServingError as error:
        messages.error(request, str(error))
        return redirect(found)
    if deployment is not None:
        messages.success(request, f"{found.model} is published and being loaded.")
        return redirect(deployment)
    messages.success(request, f"{found.model} is published. It is not loaded yet.")
    return redirect(found)


@require_POST
@require_role("operator")
def upload_discard(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    found = _upload(upload_id)
    done = _attempt(
        request,
        lambda: services.discard_upload(actor=request.user, upload=found),
        "The upload is discarded; its files are removed.",
    )
    return redirect("repository:upload") if done else redirect(found)


def _attempt(request: HttpRequest, deed: Callable[[], object], done: str) -> bool:
    try:
        deed()
    except ServingError as error:
        messages.error(request, str(error))
        return False
    messages.success(request, done)
    return True
