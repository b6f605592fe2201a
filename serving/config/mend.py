"""Makes edits of a config text by field path: the repairs that findings offer.

Every method gives None where the text does not hold the field in a form that can be edited safely.
Pure functions of one text; any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from serving.config.repair import Edit
from serving.config.tokens import IDENT, STRING, SYMBOL, Token

_CLOSERS = {"{": "}", "<": ">", "[": "]"}


class Mender:
    def __init__(
        self, text: str, tokens: Sequence[Token], places: Mapping[str, tuple[int, int]]
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._places = places

    def replace_value(self, path: str, text: str, title: str = "") -> Edit | None:
        """Write `text` as the value of the field."""
        index = self._value_index(path)
        end = self._value_end(index) if index is not None else None
        if index is None or end is None or not self._is_single(path):
            return None
        return Edit(self._tokens[index].start, end, text, title or f"Write {text}")

    def remove(self, path: str, title: str = "") -> Edit | None:
        """Take the field, or the element of a list, out of the text."""
        index = self._value_index(path)
        if index is None or not self._is_single(path):
            return None
        end = self._value_end(index)
        if end is None:
            return None
        start = self._places[path][0]
        label = title or f"Remove {path.rpartition('.')[2]}"
        if start == self._places[path][1]:
            return self._remove_element(index, end, label)
        return self.remove_statement(start, label)

    def remove_statement(self, start: int, title: str) -> Edit | None:
        """Remove the field whose name starts at `start`, with the lines that it has for itself."""
        index = self._index(start)
        if index is None or self._tokens[index].kind != IDENT:
            return None
        value = index + 1
        if self._tokens[value].text == ":":
            value += 1
        end = self._value_end(value)
        if end is None:
            return None
        end = self._past_separator(end)
        text = self._text
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        line_end = len(text) if line_end < 0 else line_end + 1
        if not text[line_start:start].strip() and not text[end:line_end].strip():
            return Edit(line_start, line_end, "", title)
        if start == line_start or text[start - 1] in " \t{<[":
            while end < len(text) and text[end] in " \t":
                end += 1
        return Edit(start, end, "", title)

    def insert_after(self, path: str, text: str, title: str = "") -> Edit | None:
        """Write another field behind the given one."""
        index = self._value_index(path)
        end = self._value_end(index) if index is not None else None
        if end is None or not self._is_single(path) or self._is_element(path):
            return None
        end = self._past_separator(end)
        return Edit(end, end, f" {text}{self._gap(end)}", title or f"Add {text}")

    def insert_inside(self, path: str, text: str, title: str = "") -> Edit | None:
        """Write a field at the start of the message `path`."""
        index = self._value_index(path)
        if index is None or self._tokens[index].text not in ("{", "<"):
            return None
        if path.endswith("]") and not path[:-1].endswith(tuple("0123456789")):
            before = self._tokens[max(index - 2, 0) : index]
            if "value" not in [token.text for token in before]:
                return None
        end = self._tokens[index].end
        return Edit(end, end, f" {text}{self._gap(end)}", title or f"Add {text}")

    def append(self, text: str, title: str = "") -> Edit:
        """Write a field on a line of its own at the end of the text."""
        end = len(self._text)
        before = "" if not self._text or self._text.endswith("\n") else "\n"
        return Edit(end, end, f"{before}{text}\n", title or f"Add {text}")

    # -- places

    def _gap(self, offset: int) -> str:
        following = self._text[offset : offset + 1]
        return "" if not following or following.isspace() else " "

    def _is_element(self, path: str) -> bool:
        name, value = self._places[path]
        return name == value

    def _is_single(self, path: str) -> bool:
        """False for a repeated field that the text gives in several places."""
        name, value = self._places[path]
        index = self._index(name)
        if index is None or name == value:
            return index is not None
        follows = [token.start for token in self._tokens[index + 1 : index + 3]]
        return value in follows or path.endswith("]")

    def _index(self, offset: int) -> int | None:
        """Index of the token that starts at `offset`."""
        index = bisect_left(self._tokens, offset, key=lambda token: token.start)
        if index < len(self._tokens) and self._tokens[index].start == offset:
            return index
        return None

    def _value_index(self, path: str) -> int | None:
        place = self._places.get(path)
        return self._index(place[1]) if place is not None else None

    def _value_end(self, index: int) -> int | None:
        """Offset behind the value whose first token is `index`."""
        token = self._tokens[index]
        if token.kind == SYMBOL:
            return self._block_end(index)
        while token.kind == STRING and self._tokens[index + 1].kind == STRING:
            index += 1
        return self._tokens[index].end

    def _block_end(self, index: int) -> int | None:
        expected: list[str] = []
        for token in self._tokens[index:]:
            if token.kind != SYMBOL:
                continue
            if token.text in _CLOSERS:
                expected.append(_CLOSERS[token.text])
            elif token.text in "}>]":
                if not expected or expected.pop() != token.text:
                    return None
                if not expected:
                    return token.end
            elif not expected:
                return None
        return None

    def _past_separator(self, offset: int) -> int:
        index = bisect_left(self._tokens, offset, key=lambda token: token.start)
        token = self._tokens[min(index, len(self._tokens) - 1)]
        return token.end if token.text in (",", ";") else offset

    def _remove_element(self, index: int, end: int, title: str) -> Edit | None:
        """Remove an element of a list with one of the commas beside it."""
        start = self._tokens[index].start
        after = self._index_from(end)
        if self._tokens[after].text == ",":
            return Edit(start, self._tokens[after + 1].start, "", title)
        if self._tokens[index - 1].text == ",":
            return Edit(self._tokens[index - 1].start, end, "", title)
        return Edit(start, end, "", title)

    def _index_from(self, offset: int) -> int:
        return bisect_left(self._tokens, offset, key=lambda token: token.start)


def quoted(text: str) -> str:
    """A string of config.pbtxt."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
