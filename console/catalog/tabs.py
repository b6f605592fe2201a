"""What every tab of a model shares: its header, the row of tabs, a 404 for what is not there."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.urls import reverse

from console.catalog import selectors
from console.catalog.ensembles import family_of
from serving.errors import NotFoundError

TABS = [
    ("model", "Summary"),
    ("versions", "Versions"),
    ("config", "Config"),
    ("statistics", "Statistics"),
    ("try", "Try it"),
    ("history", "History"),
]


def page(name: str, tab: str, **context: Any) -> dict[str, Any]:
    """The context of one tab: header, tabs, and what the tab adds. Raises Http404."""
    try:
        header = selectors.model_header(name)
    except NotFoundError as error:
        raise Http404(str(error)) from error
    tabs = [
        {
            "label": label,
            "url": reverse(f"catalog:{route}", args=[name]),
            "is_current": route == tab,
        }
        for route, label in TABS
    ]
    return {
        "header": header,
        "family": family_of(name),
        "tabs": tabs,
        "tab": tab,
        "tab_title": dict(TABS)[tab],
        **context,
    }
