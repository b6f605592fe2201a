"""A cursor over the tokens of one config text, and the mistakes noted on the way.

One Cursor serves one text in one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.config.repair import Edit
from serving.config.tokens import END, IDENT, SLASHES, SPACE, STRING, SYMBOL, Token, tokenize

MAX_MISTAKES = 100
CLOSER = {"{": "}", "<": ">", "[": "]"}


@dataclass(frozen=True, slots=True)
class Mistake:
    offset: int
    message: str
    hint: str = ""
    field: str = ""
    code: str = "REP-014"
    is_certain: bool = False
    """True: stands even where the real parser accepts the text."""
    is_warning: bool = False
    is_fatal: bool = False
    """True: the text is refused, whatever the Python parser says (Triton's own refuses it)."""
    edit: Edit | None = None
    """Mends it."""
    is_removable: bool = False
    """True: removing the field that starts at `offset` mends it."""


class TooManyMistakesError(Exception):
    """Enough was noted; the rest of the text would add noise only."""


class Cursor:
    def __init__(self, text: str) -> None:
        self.mistakes: list[Mistake] = []
        self._tokens = self._without_remarks(tokenize(text))
        self._index = 0

    def _without_remarks(self, tokens: list[Token]) -> list[Token]:
        kept = []
        for token in tokens:
            if token.kind == SPACE:
                self.mistakes.append(_odd_space(token))
            elif token.kind == SLASHES:
                message = "'//' does not start a comment here"
                edit = Edit(token.start, token.start + 2, "#", "Write '#'")
                self.mistakes.append(Mistake(token.start, message, "use '#'", edit=edit))
            else:
                kept.append(token)
        return kept

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _advance(self) -> Token:
        token = self._tokens[self._index]
        if token.kind != END:
            self._index += 1
        return token

    def _take(self, text: str) -> bool:
        if self._tokens[self._index].text == text:
            self._advance()
            return True
        return False

    def _mistake(
        self,
        token: Token,
        message: str,
        hint: str = "",
        field: str = "",
        *,
        edit: Edit | None = None,
    ) -> None:
        self._note(Mistake(token.start, message, hint, field, edit=edit))

    def _note(self, mistake: Mistake) -> None:
        self.mistakes.append(mistake)
        if len(self.mistakes) >= MAX_MISTAKES:
            raise TooManyMistakesError

    def _resync(self) -> None:
        """Skip to what may be the next field or the end of this message."""
        while True:
            token = self._token
            if token.kind == END or token.text in ("}", ">"):
                return
            if token.kind == IDENT and self._tokens[self._index + 1].text in (":", "{", "<", "["):
                return
            if token.text in CLOSER and token.kind == SYMBOL:
                self._skip_block()
            else:
                self._advance()

    def _skip_block(self) -> None:
        """Skip from an opening bracket to its closing one."""
        depth = 0
        while self._token.kind != END:
            token = self._advance()
            if token.kind == SYMBOL:
                if token.text in "{<[":
                    depth += 1
                elif token.text in "}>]":
                    depth -= 1
                    if depth <= 0:
                        return


def _odd_space(token: Token) -> Mistake:
    return Mistake(
        token.start,
        f"U+{ord(token.text):04X} is no space that a config may hold",
        "write an ordinary space; it was probably copied from a web page",
        edit=Edit(token.start, token.end, " ", "Write an ordinary space"),
        is_fatal=True,
    )


def replaced(token: Token, text: str) -> Edit:
    return Edit(token.start, token.end, text, f"Write {text}" if text else f"Remove {token.text}")


def shown(token: Token) -> str:
    if token.kind == END:
        return "the end of the file"
    return f"'{token.text}'" if token.kind != STRING else token.text
