"""Roles and scopes: viewer < operator < admin, as Django groups of the same names.

A viewer reads; an operator loads, unloads, uploads, edits and infers; an admin also manages users,
other people's tokens, and deletes. A superuser is an admin. A person in no group may only see the
own account. An API token narrows its owner's role by its scope.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group
from django.db import models


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"

    @property
    def rank(self) -> int:
        return list(Role).index(self) + 1


class Scope(models.TextChoices):
    """What an API token may be used for, whatever its owner may do."""

    READ = "read", "Read"
    INFER = "infer", "Infer"
    DEPLOY = "deploy", "Deploy"


# The highest role that a token of the scope lends to a REST request.
SCOPE_ROLES = {Scope.READ: Role.VIEWER, Scope.INFER: Role.VIEWER, Scope.DEPLOY: Role.ADMIN}


def role_of(user: Any) -> Role | None:
    """The highest role of a person; asked of the database once per user object."""
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return Role.ADMIN
    if not hasattr(user, "_console_role"):
        names = {group.name for group in user.groups.all()}
        held = [role for role in Role if role.value in names]
        user._console_role = held[-1] if held else None
    role: Role | None = user._console_role
    return role


def has_role(user: Any, needed: Role | str) -> bool:
    role = role_of(user)
    return role is not None and role.rank >= Role(needed).rank


def set_role(user: Any, role: Role | str | None) -> None:
    """Gives a person exactly this role, or none."""
    user.groups.remove(*Group.objects.filter(name__in=Role.values))
    if role:
        user.groups.add(Group.objects.get_or_create(name=Role(role).value)[0])
    if hasattr(user, "_console_role"):
        del user._console_role


def refusal(user: Any, needed: Role | str) -> str:
    role = role_of(user)
    held = f"your role is {role.label.lower()}" if role else "you have no role yet"
    return (
        f"This needs the role {Role(needed).label.lower()}; {held}. "
        "An admin can change it under Users."
    )
