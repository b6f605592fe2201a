"""Every change to people and tokens; each leaves an audit entry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction

from console.accounts.models import ApiToken, User
from console.core import audit
from console.core.roles import Role, Scope, role_of, set_role


class RefusedError(Exception):
    """A change that would lock people out; its text is for the page."""


@transaction.atomic
def create_user(*, actor: Any, name: str, password: str, role: str | None) -> User:
    user = User.objects.create_user(name, password=password)
    set_role(user, role)
    audit.record(actor, "create user", name, {"role": role})
    return user


@transaction.atomic
def change_role(*, actor: Any, user: User, role: str | None) -> None:
    before = role_of(user)
    if before == role or (before is None and not role):
        return
    if before is Role.ADMIN:
        _keep_an_admin(user)
    if user.is_superuser:
        raise RefusedError(f"{user.username} is a superuser and stays an admin.")
    set_role(user, role)
    audit.record(actor, "change role", user.username, {"before": before, "after": role})


@transaction.atomic
def set_active(*, actor: Any, user: User, is_active: bool) -> None:
    if user.is_active == is_active:
        return
    if not is_active and user.pk == actor.pk:
        raise RefusedError("You cannot deactivate your own account.")
    if not is_active and role_of(user) is Role.ADMIN:
        _keep_an_admin(user)
    user.is_active = is_active
    user.save(update_fields=["is_active"])
    audit.record(actor, "activate user" if is_active else "deactivate user", user.username)


def set_theme(*, user: User, theme: str) -> None:
    user.theme = theme
    user.save(update_fields=["theme"])


@transaction.atomic
def create_token(*, actor: User, name: str, scope: str, days: int | None) -> tuple[ApiToken, str]:
    """Returns the row and the token itself, which is kept nowhere."""
    expiry = timedelta(days=days) if days else None
    token, text = ApiToken.objects.create(actor, expiry=expiry, name=name, scope=Scope(scope))
    audit.record(actor, "create token", name, {"scope": scope, "days": days})
    return token, text


@transaction.atomic
def revoke_token(*, actor: User, token: ApiToken) -> None:
    audit.record(actor, "revoke token", token.name, {"owner": token.user.get_username()})
    token.delete()


def _keep_an_admin(user: User) -> None:
    others = User.objects.filter(is_active=True).exclude(pk=user.pk)
    if not any(role_of(other) is Role.ADMIN for other in others):
        raise RefusedError(f"{user.username} is the last admin; make somebody else admin first.")
