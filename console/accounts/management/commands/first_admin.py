"""`manage.py first_admin`: make the first administrator of an installation in containers."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from console.accounts.first_admin import FIRST_ADMIN, create_first_admin


class Command(BaseCommand):
    help = (
        "Make the administrator `admin` unless somebody can log in already. The password is "
        "CONCH_ADMIN_PASSWORD, or random and shown once."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            password = create_first_admin()
        except ValidationError as error:
            raise CommandError(f"CONCH_ADMIN_PASSWORD: {' '.join(error.messages)}") from error
        if password is None:
            self.stdout.write("Somebody can log in already; nothing to do.")
        else:
            self.stdout.write(f"First login: {FIRST_ADMIN} / {password}   (shown once)")
