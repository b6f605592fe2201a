"""Tokens of the protobuf text format, each with its offset. Pure functions; any thread.

The token shapes are those of `google.protobuf.text_format`, which decides what is accepted; two
more are known here only to explain a mistake: `//` remarks and `${...}` placeholders.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

IDENT = "ident"
NUMBER = "number"
STRING = "string"
SLASHES = "slashes"
SPACE = "space"
"""White space that is not ASCII: Python's parser skips it, Triton's refuses it."""
PLACEHOLDER = "placeholder"
SYMBOL = "symbol"
END = "end"

_TOKEN = re.compile(
    r"""(?P<skip>(?:[ \t\r\n\v\f]|\#[^\n]*)+)
    |(?P<space>\s)
    |(?P<ident>[a-zA-Z_][0-9a-zA-Z_+-]*)
    |(?P<number>(?:[0-9+-]|\.[0-9])[0-9a-zA-Z_.+-]*)
    |(?P<string>"[^"\n\\]*(?:(?:\\.)+[^"\n\\]*)*(?:"|\\?(?=\n|\Z))
               |'[^'\n\\]*(?:(?:\\.)+[^'\n\\]*)*(?:'|\\?(?=\n|\Z)))
    |(?P<slashes>//[^\n]*)
    |(?P<placeholder>\$\{[^}\n]*\}?|\{\{[^}\n]*\}\})
    |(?P<symbol>.)""",
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def tokenize(text: str) -> list[Token]:
    """Every token that means something, then one END token."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind != "skip":
            tokens.append(Token(str(kind), match.group(), match.start()))
    tokens.append(Token(END, "", len(text.rstrip())))
    return tokens


class Lines:
    """Turns offsets into 1-based lines and columns. Only a line feed ends a line."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
