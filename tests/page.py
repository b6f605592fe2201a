"""How every browser test comes to a page: none may click before the page's handlers exist."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

# As long as clicks wait (the fixtures' default timeout): other tests may keep the machine busy.
expect.set_options(timeout=20_000)

BOUND = "html[data-bound], html:not(:has(meta[name=behaviors]))"
"""`main.js` marks the document; pages without behaviours have nothing to wait for."""


def until_bound(page: Any) -> None:
    """Until a click finds its handler; call it after whatever brings new elements, too."""
    page.locator(BOUND).wait_for(state="attached")


def visit(page: Any, address: str) -> Any:
    """Goes there and waits for the handlers; returns the response."""
    response = page.goto(address)
    until_bound(page)
    return response


def reload(page: Any) -> None:
    page.reload()
    until_bound(page)
