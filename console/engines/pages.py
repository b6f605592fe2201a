"""Pages of engine builds: history, the form, one build with its progress, cancel and retry."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.core import workers as fleet
from console.core.permissions import require_role
from console.engines import selectors, services
from console.engines.choices import BuildState
from console.engines.forms import EngineForm
from console.engines.models import EngineBuild
from serving.errors import InvalidArgumentError, NotFoundError, ServingError

PAGE_SIZE = 50


@require_GET
@require_role("viewer")
def history(request: HttpRequest) -> HttpResponse:
    search, state = request.GET.get("q", "").strip(), request.GET.get("state", "")
    if state not in (*BuildState.values, "open"):
        state = ""
    rows = selectors.builds(search, state)
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "search": search,
        "state": state,
        "states": [("open", "Still open"), *BuildState.choices],
        "has_open": any(row.is_open for row in page),
        "is_filtered": bool(search or state),
    }
    is_fragment = request.headers.get("HX-Target") == "engines"
    template = "engines/_history.html" if is_fragment else "engines/list.html"
    return render(request, template, context)


@require_http_methods(["GET", "POST"])
@require_role("operator")
def new(request: HttpRequest, model: str) -> HttpResponse:
    """The form, prefilled from the model; posted, the build begins."""
    try:
        source = selectors.source_of(model)
    except NotFoundError as error:
        raise Http404(str(error)) from error
    except InvalidArgumentError as error:
        messages.error(request, str(error))
        return redirect("catalog:versions", model)
    workers = selectors.connected(fleet.known()[0])
    form = EngineForm(
        request.POST or None,
        model=model,
        versions=source.versions,
        inputs=source.inputs,
        workers=workers,
    )
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                return redirect(services.build_engine(actor=request.user, wish=form.wish))
            except ServingError as error:
                form.add_error(None, str(error))
    context = {"form": form, "source": source, "has_workers": bool(workers)}
    return render(request, "engines/new.html", context, status=status)


@require_GET
@require_role("viewer")
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    is_fragment = request.headers.get("HX-Target") == "engine"
    template = "engines/_detail.html" if is_fragment else "engines/detail.html"
    return render(request, template, {"build": _build(pk)})


def _build(pk: int) -> EngineBuild:
    try:
        return selectors.get(pk)
    except NotFoundError as error:
        raise Http404(str(error)) from error


@require_POST
@require_role("operator")
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    build = _build(pk)
    try:
        services.cancel(actor=request.user, build=build)
        messages.success(request, "The build is being cancelled.")
    except ServingError as error:
        messages.error(request, str(error))
    return redirect(build)


@require_POST
@require_role("operator")
def retry(request: HttpRequest, pk: int) -> HttpResponse:
    build = _build(pk)
    try:
        return redirect(services.retry(actor=request.user, build=build))
    except ServingError as error:
        messages.error(request, str(error))
        return redirect(build)
