"""People with a theme of their own, and API tokens with a name and a scope."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone
from knox.models import AbstractAuthToken

from console.core.roles import Scope


class Theme(models.TextChoices):
    SYSTEM = "system", "As the system"
    LIGHT = "light", "Light"
    DARK = "dark", "Dark"


class User(AbstractUser):  # type: ignore[django-manager-missing]
    theme = models.CharField(max_length=8, choices=Theme.choices, default=Theme.SYSTEM)


class ApiToken(AbstractAuthToken):  # type: ignore[misc]
    """Only a digest is kept; the token itself is shown once, at its creation."""

    name = models.CharField(max_length=60)
    scope = models.CharField(max_length=8, choices=Scope.choices, default=Scope.READ)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} ({self.scope})"

    @property
    def is_expired(self) -> bool:
        return self.expiry is not None and self.expiry <= timezone.now()
