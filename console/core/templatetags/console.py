"""Tags and filters of every template: states, numbers with units, times.

Numbers: `—` for "does not apply" (None), `0` for zero. All are builtins of the template engine, so
no `{% load %}` is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django import template
from django.conf import settings
from django.http import QueryDict
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from console.core.choices import STATES, state_look

register = template.Library()

NONE = "—"
SPACE = "\u00a0"
DIGEST_LENGTH = 64
DIGEST_SHOWN = 12

SHAPES = {
    "dot": '<circle cx="6" cy="6" r="5"/>',
    "ring": '<path class="stroke" d="M6 1.5a4.5 4.5 0 1 1-4.5 4.5"/>',
    "circle": '<circle class="stroke" cx="6" cy="6" r="4.25"/>',
    "triangle": '<path d="M6 .8 11.6 11H.4Z"/>',
    "diamond": '<path d="M6 .2 11.8 6 6 11.8.2 6Z"/>',
}


@register.simple_tag
def state(value: Any, word: str = "") -> SafeString:
    """Shape and word of a state: `{% state row.state %}` or `{% state "failed" "Queue full" %}`."""
    look = state_look(str(value or ""))
    return format_html(
        '<span class="state state--{}">{}<span>{}</span></span>',
        look.tone,
        shape(look.shape),
        word or look.word,
    )


@register.simple_tag
def shape(name: str) -> SafeString:
    """One of the five shapes alone; the text beside it says what it means."""
    drawing = mark_safe(SHAPES[name])  # noqa: S308 - a constant of this module
    return format_html(
        '<svg class="shape shape--{}" viewBox="0 0 12 12" aria-hidden="true">{}</svg>',
        name,
        drawing,
    )


@register.filter
def state_word(value: Any) -> str:
    return state_look(str(value or "")).word


@register.filter
def is_state(value: Any) -> bool:
    return str(value) in STATES


@register.filter
def number(value: Any, digits: int = 0) -> str:
    """1,284 or 11.8 with `|number:1`; a rate under 10 keeps one digit more than asked for 0."""
    if value is None or value == "":
        return NONE
    return f"{float(value):,.{int(digits)}f}"


@register.filter
def rate(value: Any) -> str:
    """Three significant figures at least: 1,284 · 61.2 · 0.42 · 0."""
    if value is None or value == "":
        return NONE
    amount = float(value)
    if amount == 0:
        return "0"
    size = abs(amount)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{amount:,.{digits}f}"


@register.filter
def percent(value: Any, digits: int | None = None) -> str:
    """A share of 1 as per cent, without the sign; three figures, or `digits` decimals."""
    if value is None or value == "":
        return NONE
    share = float(value) * 100
    return rate(share) if digits is None else f"{share:.{int(digits)}f}"


@register.filter
def ms(value: Any) -> str:
    """Microseconds as milliseconds, without the unit."""
    return NONE if value is None or value == "" else rate(float(value) / 1000)


@register.filter
def duration_us(value: Any) -> str:
    """Microseconds with the fitting unit: 90 µs · 2.1 ms · 1.4 s."""
    if value is None or value == "":
        return NONE
    amount = float(value)
    if amount < 1000:
        return f"{amount:.0f}{SPACE}µs"
    if amount < 1_000_000:
        return f"{rate(amount / 1000)}{SPACE}ms"
    return f"{rate(amount / 1_000_000)}{SPACE}s"


@register.filter
def duration(value: Any) -> str:
    """Seconds or a timedelta in words: 0.4 s · 12 s · 6 min · 3 h · 8 d."""
    if value is None or value == "":
        return NONE
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if 0 < seconds < 0.05:
        return f"<0.1{SPACE}s"
    if seconds < 1:
        return f"{seconds:.1f}{SPACE}s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)}{SPACE}{unit}"
    return f"{int(seconds)}{SPACE}s"


@register.filter
def size(value: Any) -> str:
    """Bytes with a decimal unit: 412 B · 98.1 MB · 141 GB."""
    if value is None or value == "":
        return NONE
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:,.0f}{SPACE}B" if unit == "B" else f"{rate(amount)}{SPACE}{unit}"
        amount /= 1000
    return f"{rate(amount)}{SPACE}TB"


@register.filter
def gigabytes(value: Any) -> str:
    """Bytes in GB without the unit: 58 · 0.4."""
    if value is None or value == "":
        return NONE
    amount = float(value) / 1e9
    return f"{amount:,.0f}" if amount >= 10 or amount == 0 else f"{amount:.1f}"


@register.filter
def words(value: Any) -> str:
    """`worker_started` as `Worker started`."""
    return str(value).replace("_", " ").capitalize()


@register.filter
def details(detail: Mapping[str, Any]) -> str:
    """What an audit entry adds, without what is empty; digests cut short."""
    return " · ".join(
        f"{key} {_detail(value)}"
        for key, value in detail.items()
        if value not in (None, "", [], {})
    )


def _detail(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    text = str(value)
    return text[:DIGEST_SHOWN] if len(text) == DIGEST_LENGTH and text.isalnum() else text


def moment(value: Any) -> datetime | None:
    """A datetime from a datetime or from seconds since the epoch (wire messages)."""
    if value is None or value == "":
        return None
    return value if isinstance(value, datetime) else datetime.fromtimestamp(float(value), UTC)


@register.filter
def ago(value: Any) -> SafeString | str:
    """`6 min ago` in a <time> element that carries the exact time."""
    at = moment(value)
    if at is None:
        return NONE
    passed = timezone.now() - at
    text = "now" if passed < timedelta(seconds=3) else f"{duration(passed)} ago"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(timespec="seconds"),
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        text,
    )


@register.filter
def clock(value: Any) -> SafeString | str:
    """12:01:04, in a <time> element with the date."""
    at = moment(value)
    if at is None:
        return NONE
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(timespec="seconds"),
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        at.strftime("%H:%M:%S"),
    )


@register.simple_tag
def behaviors() -> str:
    """Name -> address of every file in static/js/behaviors, as JSON for `main.js`."""
    return _behaviors_again() if settings.DEBUG else _behaviors()


def _behaviors_again() -> str:
    folder = settings.BASE_DIR / "static" / "js" / "behaviors"
    names = sorted(path.stem for path in folder.glob("*.js"))
    return json.dumps({name: static(f"js/behaviors/{name}.js") for name in names})


_behaviors = lru_cache(maxsize=1)(_behaviors_again)


@register.filter
def get(mapping: Any, key: Any) -> Any:
    """`{{ rates|get:row.name }}`"""
    return mapping.get(key)


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: Any) -> str:
    """The query string of this page with some parameters changed; None or "" drops one."""
    parameters: QueryDict = context["request"].GET.copy()
    for name, value in changes.items():
        if value is None or value == "":
            parameters.pop(name, None)
        else:
            parameters[name] = str(value)
    return "?" + parameters.urlencode()
