"""What every template knows besides its own context: role, menu, theme."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from console.core.roles import Role, role_of
from console.core.workers import trouble
from console.monitoring.glance import menu_counts
from console.navigation import build_menu


def console(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    role = role_of(user) if user is not None else None
    return {
        "role": role,
        "is_operator": role is not None and role.rank >= Role.OPERATOR.rank,
        "is_admin": role is Role.ADMIN,
        # Counted only by pages that show it: fragments do not.
        "menu": SimpleLazyObject(lambda: build_menu(request.path, role, menu_counts)),
        # Called where the page shows it: behind the menu, which has asked.
        "trouble": trouble,
        "theme": getattr(user, "theme", "system"),
    }
