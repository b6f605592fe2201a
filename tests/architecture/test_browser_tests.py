"""Browser tests come to their pages in one way, so that none can click before handlers exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ONLY_WAY = TESTS / "page.py"
BY_HAND = re.compile(r"\bpage\w*\.(goto|reload|wait_for_function|wait_for_timeout)\(")


def test_no_test_goes_to_a_page_or_waits_by_hand() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != ONLY_WAY
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_HAND.search(line)
    ]

    assert found == [], "use visit, reload and until_bound of tests/page.py, and locators"
