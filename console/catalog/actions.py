"""Runs what a person asked for on a page and turns refusals into messages.

Writes themselves are in `console.deployments.services` and `console.repository.services`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest

from serving.errors import ServingError


def attempt(request: HttpRequest, deed: Callable[[], Any], done: str) -> bool:
    """Do it; True and a success message, or False and the reason as an error message."""
    try:
        deed()
    except ServingError as error:
        messages.error(request, str(error))
        return False
    messages.success(request, done)
    return True
