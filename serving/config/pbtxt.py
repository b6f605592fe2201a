"""config.pbtxt text -> ModelConfig message, findings with line and column, and field positions.

`google.protobuf.text_format` judges what is accepted; `serving.config.walker` reads the same text
for positions and for better words. Pure functions; any thread.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from google.protobuf import text_format

from serving.config.cursor import Mistake
from serving.config.findings import Finding, Severity
from serving.config.mend import Mender
from serving.config.protobuf import pb
from serving.config.repair import Edit, to_repair
from serving.config.tokens import SLASHES, SPACE, Lines, tokenize
from serving.config.walker import Walker

MAX_FINDINGS = 50
MAX_CONFIG_BYTES = 8 * 1024 * 1024
MAX_MENDED_CHARACTERS = 100_000
"""Longer texts get no repairs: each one is tried before it is offered."""

_STEP = re.compile(r'\.?[^.\[\]]+|\["(?:[^"\\]|\\.)*"\]|\[[^\]]*\]')


@dataclass(frozen=True)
class ParsedConfig:
    """One config text as read. Later steps may complete `config` in place."""

    text: str
    config: pb.ModelConfig | None
    """None where the text is not a ModelConfig."""
    findings: list[Finding]
    file: str = "config.pbtxt"
    places: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """Field path -> offsets of its name (or list element) and of its value."""
    lines: Lines = field(default_factory=lambda: Lines(""), repr=False)

    def has(self, path: str) -> bool:
        """Does the text itself give this field?"""
        return path in self.places

    def position(self, path: str) -> tuple[int, int]:
        """Line and column of a field, or of the nearest field around it; (0, 0) for none."""
        return self._place(path, 0)

    def value_position(self, path: str) -> tuple[int, int]:
        """As `position`, but of the value."""
        return self._place(path, 1)

    def _place(self, path: str, which: int) -> tuple[int, int]:
        place = self.places.get(path)
        if place is not None:
            return self.lines.place(place[which])
        steps = [match.group() for match in _STEP.finditer(path)]
        while steps:
            steps.pop()
            place = self.places.get("".join(steps))
            if place is not None:
                return self.lines.place(place[0])
        return 0, 0

    @cached_property
    def mender(self) -> Mender:
        tokens = [token for token in tokenize(self.text) if token.kind not in (SLASHES, SPACE)]
        return Mender(self.text, tokens, self.places)

    def finding(
        self,
        severity: Severity,
        path: str,
        message: str,
        hint: str = "",
        *,
        code: str = "",
        edit: Edit | None = None,
    ) -> Finding:
        """A finding about a field, at its place in the text; `edit` would mend it."""
        line, column = self.position(path)
        repair = to_repair(edit, self.lines) if edit is not None else None
        return Finding(severity, message, hint, path, line, column, self.file, code, repair)

    def placed(self, finding: Finding) -> Finding:
        """A finding that names a field only, at the place of that field."""
        line, column = self.position(finding.field)
        return replace(finding, line=line, column=column, file=self.file)


def parse(text: str, *, file: str = "config.pbtxt") -> ParsedConfig:
    """Read config text. Never raises: what is wrong is in `findings`, and then `config` is None."""
    lines = Lines(text)
    lone = _lone_surrogate(text)
    if lone is not None:
        mistake = Mistake(lone, "the text holds half a character (a lone surrogate)", "remove it")
        parsed = ParsedConfig(text, None, [], file, {}, lines)
        parsed.findings.append(_finding(mistake, parsed))
        return parsed
    walker = Walker(text)
    walker.run()
    config, refusal = None, None
    if not any(mistake.is_fatal for mistake in walker.mistakes):
        config, refusal = _judge(text)
    mistakes = walker.mistakes if config is None else _standing(walker.mistakes)
    parsed = ParsedConfig(text, config, [], file, walker.places, lines)
    findings = parsed.findings
    findings += [_finding(_proven(mistake, mistakes, parsed), parsed) for mistake in mistakes]
    if refusal is not None and not any(item.severity is Severity.ERROR for item in findings):
        findings.append(_refusal(refusal, file))
    findings.sort(key=lambda item: (item.line, item.column))
    del findings[MAX_FINDINGS:]
    return parsed


def read_text(path: Path) -> tuple[str | None, list[Finding]]:
    """The text of a config file, or None and why not. Raises OSError when it cannot be opened."""
    status = path.stat()
    size = status.st_size
    message = ""
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        # Reading a pipe waits for a writer, reading a device may never end.
        message = (
            f"{path.name} is no regular file but a pipe, socket or device: put a text file there"
        )
    elif size > MAX_CONFIG_BYTES:
        message = f"{path.name} has {size} bytes; a config may have {MAX_CONFIG_BYTES}"
    if message:
        return None, [Finding(Severity.ERROR, message, file=path.name, code="REP-014")]
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rsplit(b"\n", 1)[-1].decode("utf-8", "replace")) + 1
        finding = Finding(
            Severity.ERROR,
            f"byte 0x{raw[error.start]:02x} is not UTF-8 text",
            "save the file as UTF-8",
            "",
            line,
            column,
            path.name,
            "REP-014",
        )
        return None, [finding]


def _lone_surrogate(text: str) -> int | None:
    """Offset of what no UTF-8 text can hold; such text may come from JSON."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def _judge(text: str) -> tuple[pb.ModelConfig | None, text_format.ParseError | None]:
    config = pb.ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        return None, error
    return config, None


def _standing(mistakes: list[Mistake]) -> list[Mistake]:
    """What still holds of a text that the real parser accepts."""
    standing = [item for item in mistakes if item.is_certain]
    twice = [item for item in mistakes if "given twice" in item.message and not item.is_certain]
    return standing + [replace(item, is_warning=True) for item in twice]


def _proven(mistake: Mistake, mistakes: list[Mistake], parsed: ParsedConfig) -> Mistake:
    """The mistake with its edit, if that mends it: one mistake may hide or cause others."""
    edit = mistake.edit
    if mistake.is_removable:
        edit = parsed.mender.remove_statement(mistake.offset, "Remove this one")
    if edit is None or len(parsed.text) > MAX_MENDED_CHARACTERS:
        return replace(mistake, edit=None)
    again = Walker(parsed.text[: edit.start] + edit.text + parsed.text[edit.end :])
    again.run()
    is_mended = _alike(mistake, again.mistakes) < _alike(mistake, mistakes)
    return replace(mistake, edit=edit if is_mended else None)


def _alike(mistake: Mistake, mistakes: list[Mistake]) -> int:
    return sum(
        (item.code, item.field, item.message) == (mistake.code, mistake.field, mistake.message)
        for item in mistakes
    )


def _finding(mistake: Mistake, parsed: ParsedConfig) -> Finding:
    severity = Severity.WARNING if mistake.is_warning else Severity.ERROR
    line, column = parsed.lines.place(mistake.offset)
    edit = mistake.edit
    return Finding(
        severity,
        mistake.message,
        mistake.hint,
        mistake.field,
        line,
        column,
        parsed.file,
        mistake.code,
        to_repair(edit, parsed.lines) if edit is not None else None,
    )


def _refusal(error: text_format.ParseError, file: str) -> Finding:
    """The real parser's own words, for what the walker did not see."""
    words = str(error)
    match = re.match(r"\d+:\d+ : (?:'.*': )?(.*)", words, re.DOTALL)
    return Finding(
        Severity.ERROR,
        (match.group(1) if match else words).rstrip("."),
        "",
        "",
        error.GetLine() or 0,
        error.GetColumn() or 0,
        file,
        "REP-014",
    )
