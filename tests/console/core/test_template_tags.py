"""How states, numbers and times are written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import timezone

from console.core.choices import STATES
from console.core.templatetags import console as tags


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize("value", STATES)
def test_state_is_shape_word_and_tone(value: str) -> None:
    html = tags.state(value)

    assert "<svg" in html
    assert STATES[value].word in html
    assert f"state--{STATES[value].tone}" in html


def test_unheard_of_state_is_a_warning_not_an_error() -> None:
    assert "Half done" in tags.state("half_done")
    assert "state--warn" in tags.state("half_done")


def test_state_word_can_be_replaced_and_is_escaped() -> None:
    assert "&lt;b&gt;" in tags.state("failed", "<b>")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0, "0"), (0.4213, "0.42"), (11.84, "11.8"), (1284.4, "1,284")],
)
def test_rate_keeps_three_figures(value: float | None, text: str) -> None:
    assert tags.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (412, "412 B"), (98_100_000, "98.1 MB"), (141e9, "141 GB"), (3e15, "3,000 TB")],
)
def test_size_has_a_decimal_unit(value: float | None, text: str) -> None:
    assert plain(tags.size(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0.4, "0.4 s"), (12, "12 s"), (400, "6 min"), (timedelta(days=8), "8 d")],
)
def test_duration_is_in_words(value: Any, text: str) -> None:
    assert plain(tags.duration(value)) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "—"), (90, "90 µs"), (2100, "2.10 ms"), (1_400_000, "1.40 s")]
)
def test_microseconds_get_the_fitting_unit(value: float | None, text: str) -> None:
    assert plain(tags.duration_us(value)) == text


def test_age_is_of_a_datetime_or_of_epoch_seconds() -> None:
    then = timezone.now() - timedelta(minutes=6)

    assert "6 min ago" in plain(tags.ago(then))
    assert "6 min ago" in plain(tags.ago(then.timestamp()))
    assert tags.ago(None) == "—"


def test_query_changes_one_parameter_and_keeps_the_others() -> None:
    request = RequestFactory().get("/live/?range=5m&model=a%20b")
    template = Template("{% query range='1h' worker=None %}")

    assert template.render(Context({"request": request})) == "?range=1h&amp;model=a+b"


def test_details_of_an_audit_entry_leave_out_what_is_empty() -> None:
    detail = {"deployment": 12, "versions": [1, 2], "workers": [], "error": "", "reason": None}

    assert tags.details(detail) == "deployment 12 · versions 1, 2"
    assert tags.details({"sha256": "ab" * 32}) == "sha256 abababababab"
    assert tags.details({"max_batch_size": 0}) == "max_batch_size 0"
