"""An engine build in Chromium: asked for and followed. Looks: tests/browser/test_every_page.py."""

from __future__ import annotations

from typing import Any

import pytest

from console.engines import operations
from console.engines.models import EngineBuild
from tests.console.chromium import signed_in

pytestmark = pytest.mark.browser


@pytest.mark.django_db(transaction=True)
def test_an_engine_is_asked_for_and_followed(
    web: Any, model: Any, tell: Any, login: Any, operator: Any
) -> None:
    """Progress arrives without a reload."""
    with signed_in(web, login(operator)) as open_page:
        page = open_page("/models/adder/versions/")
        page.get_by_role("link", name="Build a TensorRT engine…").click()
        page.get_by_label("Compute capabilities").fill("8.9")
        page.get_by_role("button", name="Build", exact=True).click()
        page.get_by_text("Waiting for the worker").wait_for()

        row = EngineBuild.objects.get()
        tell(row, "running", phase="Optimizing graph", fraction=0.42)
        operations.follow()
        page.get_by_text("Optimizing graph · 42 %").wait_for()
        tell(row, "succeeded", version=1, engine_bytes=147_620, builder="TensorRT-RTX 1.7.1.116")
        operations.follow()
        page.get_by_role("heading", name="Result").wait_for()
