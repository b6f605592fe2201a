"""Error pages, health answers and the audit page."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.core.paginator import Paginator
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static

from console.core import audit
from console.core.exceptions import error_body
from console.core.permissions import Role, require_role


@require_role(Role.ADMIN)
def audit_log(request: HttpRequest) -> HttpResponse:
    search = request.GET.get("q", "").strip()
    who = request.GET.get("who", "")
    who = who if who in audit.WHO else ""
    found = audit.entries(search=search, who=who)
    page = Paginator(found, 50).get_page(request.GET.get("page"))
    context = {"page": page, "search": search, "who": who, "whos": audit.WHO}
    return render(request, "core/audit.html", context)


@login_not_required
def favicon(request: HttpRequest) -> HttpResponseBase:
    """For browsers that ask for it without reading the page."""
    return redirect(static("img/icon.svg"))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _error(request, 400, "Bad request", "The request could not be understood.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _error(request, 403, "Not allowed", str(exception) or "You may not do this.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    text = str(exception.args[0]) if exception.args else ""
    # The resolver's own text describes URL patterns: not for readers.
    is_plain = bool(text) and "tried" not in text and "Resolver" not in text
    message = text if is_plain else "There is nothing under this address."
    if not is_plain and request.path.startswith("/api/") and request.path.endswith("/"):
        message += " Addresses of the REST API do not end with a slash."
    return _error(request, 404, "Not found", message)


def server_error(request: HttpRequest) -> HttpResponseBase:
    message = "The console failed to answer. The log of the web process has the traceback."
    return _error(request, 500, "Something broke", message)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    message = (
        "The form was too old or came from another site. Go back, reload the page, send again."
    )
    return _error(request, 403, "Form refused", message)


def _error(request: HttpRequest, status: int, title: str, message: str) -> HttpResponseBase:
    if request.path.startswith("/api/"):
        code = {400: "bad_request", 403: "permission_denied", 404: "not_found"}.get(status, "error")
        return JsonResponse(error_body(code, message), status=status)
    template = f"{status}.html" if status in (403, 404, 500) else "error.html"
    context = {"status": status, "title": title, "message": message}
    _close_old_connections()
    try:
        return render(request, template, context, status=status)
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    """Under ASGI, Django renders error pages in threads beside the request's own: what is opened
    there nobody else closes, and what was left open there may have died since."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
