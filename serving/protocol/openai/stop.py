"""Stop sequences in a text that comes in pieces. Pure; one scanner for each answer."""

from __future__ import annotations

from collections.abc import Sequence


class StopScanner:
    """Lets text through up to the first stop sequence, which itself is left out.

    What could be the beginning of one is held back until more text decides.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.is_stopped = False

    def feed(self, text: str) -> str:
        """What may go out now."""
        if self.is_stopped or not self._stops:
            return "" if self.is_stopped else text
        seen = self._held + text
        places = [place for stop in self._stops if (place := seen.find(stop)) >= 0]
        if places:
            self.is_stopped, self._held = True, ""
            return seen[: min(places)]
        keep = max(_overlap(seen, stop) for stop in self._stops)
        self._held = seen[len(seen) - keep :]
        return seen[: len(seen) - keep]

    def rest(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` may begin `stop`."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
