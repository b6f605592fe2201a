"""The first administrator of a new installation, whose password is shown once and kept nowhere."""

from __future__ import annotations

import os
import secrets

from django.contrib.auth.password_validation import validate_password

from console.accounts import services
from console.accounts.models import User
from console.core.roles import Role

FIRST_ADMIN = "admin"


def create_first_admin() -> str | None:
    """Make it unless somebody can log in already; returns the password, None where it exists.

    `CONCH_ADMIN_PASSWORD` chooses the password, else it is random.
    Raises: ValidationError when the chosen password is too weak.
    """
    if User.objects.filter(is_active=True).exists():
        return None
    chosen = os.environ.get("CONCH_ADMIN_PASSWORD")
    if chosen:
        validate_password(chosen)
    password = chosen or secrets.token_urlsafe(12)
    services.create_user(actor=None, name=FIRST_ADMIN, password=password, role=Role.ADMIN)
    return password
