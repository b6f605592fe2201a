"""The response cache: answers that are given again without another execution (SCH-120..126)."""

from __future__ import annotations
