"""What every template knows besides its own context: role, menu, theme."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from console.core.roles import Role, role_of
from console.navigation import build_menu


def console(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    role = role_of(user) if user is not None else None
    return {
        "role": role,
        "is_operator": role is not None and role.rank >= Role.OPERATOR.rank,
        "is_admin": role is Role.ADMIN,
        "menu": build_menu(request.path, role),
        "theme": getattr(user, "theme", "system"),
    }
