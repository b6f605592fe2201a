"""What a run has seen: how many of what, and everything that must not be."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_MOST_FINDINGS = 40
_SHAPELESS = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9]+|\[[^\]]*\]")


@dataclass(slots=True)
class Report:
    requests: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    """By protocol and status."""
    refusals: Counter[str] = field(default_factory=Counter)
    """The texts of statuses from 501 on and UNAVAILABLE, UNIMPLEMENTED: who is blamed?"""
    findings: list[str] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    canary_answers: int = 0
    slowest_canary_s: float = 0.0
    rss_kib: list[int] = field(default_factory=list)
    """Of the server, at every twentieth of the requests."""
    early_kib: int = 0
    late_kib: int = 0
    seconds: float = 0.0
    tracebacks: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Of the server's resident memory, after the warm-up."""
        return self.late_kib / self.early_kib - 1 if self.early_kib else 0.0

    def find(self, what: str, case: str) -> None:
        """Each kind of finding is told a few times only."""
        kind = shapeless(what)
        self.found[kind] += 1
        if self.found[kind] <= 3 and len(self.findings) < _MOST_FINDINGS:
            self.findings.append(f"{what}\n    {case[:3000]}")

    def text(self) -> str:
        lines = [
            f"{self.requests} requests in {self.seconds:.0f} s, "
            f"{self.canary_answers} answers of the canary, "
            f"the slowest {self.slowest_canary_s:.2f} s"
        ]
        lines += [f"  {count:8} {kind}" for kind, count in sorted(self.answers.items())]
        rss = f"{self.early_kib / 1024:.1f} > {self.late_kib / 1024:.1f} MiB"
        lines.append(f"RSS after warm-up {rss} ({self.growth:+.1%})")
        lines.append("  " + " ".join(f"{kib / 1024:.1f}" for kib in self.rss_kib))
        lines += [f"  {count:8} {text}" for text, count in self.refusals.most_common(25)]
        lines += [f"FOUND {count} times: {kind}" for kind, count in self.found.most_common()]
        lines += self.findings
        lines += [f"TRACEBACK in the log:\n{text}" for text in self.tracebacks[:5]]
        return "\n".join(lines)


def shapeless(text: str) -> str:
    """Without what differs from case to case."""
    return _SHAPELESS.sub("_", text)[:160]
