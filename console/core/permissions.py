"""Guards of views, by the roles of `console.core.roles`: decorator, mixin, REST permissions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.views import View
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from console.core.roles import SCOPE_ROLES, Role, Scope, has_role, refusal, role_of, set_role

__all__ = [
    "Role",
    "RoleAdmin",
    "RoleOperator",
    "RoleRequiredMixin",
    "RoleViewer",
    "Scope",
    "check_role",
    "has_role",
    "require_role",
    "role_of",
    "set_role",
]


def check_role(user: Any, needed: Role | str) -> None:
    """Raises: PermissionDenied, with a sentence for the error page."""
    if not has_role(user, needed):
        raise PermissionDenied(refusal(user, needed))


ViewFunction = Callable[..., HttpResponseBase]


def require_role(needed: Role | str) -> Callable[[ViewFunction], ViewFunction]:
    """Guards a function view: anonymous goes to the login page, too little right gets a 403."""

    def decorate(view: ViewFunction) -> ViewFunction:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            check_role(request.user, needed)
            return view(request, *args, **kwargs)

        return guarded

    return decorate


class RoleRequiredMixin(View):
    """The same guard for class-based views: set `required_role`; leftmost in the bases."""

    required_role: Role | str = Role.VIEWER

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        check_role(request.user, self.required_role)
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return response


class RolePermission(BasePermission):
    """Guards a REST view; both the person's role and the token's scope must allow it."""

    role = Role.VIEWER

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user.is_authenticated:
            return False
        if not has_role(request.user, self.role):
            self.message = refusal(request.user, self.role)
            return False
        scope = getattr(request.auth, "scope", None)
        if scope is not None and SCOPE_ROLES[Scope(scope)].rank < self.role.rank:
            self.message = f"The token's scope is {scope}; this needs a token with scope deploy."
            return False
        return True


class RoleViewer(RolePermission):
    role = Role.VIEWER


class RoleOperator(RolePermission):
    role = Role.OPERATOR


class RoleAdmin(RolePermission):
    role = Role.ADMIN
