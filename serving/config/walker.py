"""Walks config.pbtxt text beside the real parser: where each field stands, and what is wrong.

The walker follows the grammar of the protobuf text format with the ModelConfig schema. It records a
place for every field path, and it goes on after a mistake, so that one look shows them all. Whether
a text is accepted is decided by `google.protobuf.text_format` alone (see `serving.config.pbtxt`).
One Walker serves one text in one thread.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from serving.config import scalars
from serving.config.cursor import (
    CLOSER,
    Cursor,
    Mistake,
    TooManyMistakesError,
    replaced,
    shown,
)
from serving.config.repair import Edit
from serving.config.schema import MODEL_CONFIG, FieldInfo, MessageInfo, map_path
from serving.config.suggest import field_hint
from serving.config.tokens import END, IDENT, PLACEHOLDER, STRING, SYMBOL, Token


@dataclass(slots=True)
class _Scope:
    """One message being read."""

    info: MessageInfo
    path: str
    closer: str
    opened: Token
    outer: _Scope | None
    seen: dict[str, Token]
    """Singular fields and oneofs -> the token that set them."""
    counts: dict[str, int]

    @property
    def title(self) -> str:
        return f"'{self.path.rstrip('.')}'" if self.path else "the file"

    @property
    def where(self) -> str:
        return f"in {self.title}" if self.path else "at the top level"


class Walker(Cursor):
    """Read `places` (field path -> offsets of name and value) and `mistakes` after `run`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.places: dict[str, tuple[int, int]] = {}
        self._is_closing_offered = False

    def run(self) -> None:
        first = self._tokens[0]
        if first.text == "{" or (first.kind == PLACEHOLDER and first.text.startswith("{{")):
            self._mistake(
                first,
                "the file starts with '{': it looks like JSON",
                "config.pbtxt is protobuf text: write `name: value`, with no braces around",
            )
            return
        with contextlib.suppress(TooManyMistakesError):
            self._message(_Scope(MODEL_CONFIG, "", "", first, None, {}, {}))

    # -- messages

    def _message(self, scope: _Scope) -> None:
        while True:
            token = self._token
            if token.kind == END:
                if scope.closer:
                    self._mistake(
                        scope.opened,
                        f"'{scope.opened.text}' of {scope.title} is never closed",
                        f"add '{scope.closer}'",
                        scope.path.rstrip("."),
                        edit=self._closing(scope, token),
                    )
                return
            if token.text in ("}", ">") and token.kind == SYMBOL:
                if self._close(scope, token):
                    return
            elif token.kind == IDENT:
                self._advance()
                self._named_field(scope, token)
                if not self._take(","):
                    self._take(";")
            else:
                self._not_a_field(scope, token)

    def _closing(self, scope: _Scope, end: Token) -> Edit | None:
        """Close the innermost message at the end of the text; the outer ones come after it."""
        if self._is_closing_offered:
            return None
        self._is_closing_offered = True
        return Edit(end.start, end.start, f"\n{scope.closer}", f"Add {scope.closer} at the end")

    def _close(self, scope: _Scope, token: Token) -> bool:
        """True when `token` ends the message."""
        if token.text == scope.closer:
            self._advance()
            return True
        if not scope.closer:
            self._advance()
            message = f"'{token.text}' closes nothing"
            self._mistake(token, message, "remove it", edit=replaced(token, ""))
            return False
        self._advance()
        self._mistake(
            token,
            f"{scope.title} was opened with '{scope.opened.text}' and cannot end with "
            f"'{token.text}'",
            f"write '{scope.closer}'",
            scope.path.rstrip("."),
            edit=replaced(token, scope.closer),
        )
        return True

    def _not_a_field(self, scope: _Scope, token: Token) -> None:
        hint = "write `name: value`"
        edit = None
        following = self._tokens[min(self._index + 1, len(self._tokens) - 1)]
        if token.kind == STRING and following.text == ":":
            hint = "field names stand without quotes; this is protobuf text, not JSON"
            bare = token.text[1:-1]
            edit = replaced(token, bare) if bare in scope.info.fields else None
        elif token.text in (",", ";"):
            hint = "one ',' or ';' may follow a field; remove this one"
            edit = replaced(token, "")
        elif token.kind == PLACEHOLDER:
            hint = "fill in the template first"
        elif token.text == "\ufeff":
            hint = "the file starts with a byte-order mark: save it as UTF-8 without one"
            edit = Edit(token.start, token.end, "", "Remove the byte-order mark")
        elif token.text == "]":
            hint = "a list opens with '[' after the ':' of its field"
        self._mistake(
            token,
            f"expected a field name {scope.where}, found {shown(token)}",
            hint,
            scope.path.rstrip("."),
            edit=edit,
        )
        self._advance()
        self._resync()

    # -- fields

    def _named_field(self, scope: _Scope, name: Token) -> None:
        field = scope.info.fields.get(name.text)
        if field is None:
            self._unknown_field(scope, name)
            return
        path = scope.path + field.name
        self.places.setdefault(path, (name.start, self._token.start))
        self._check_single(scope, field, name, path)
        if field.is_message:
            self._take(":")
        elif not self._take(":") and not self._missing_colon(name, path):
            return
        self.places[path] = (self.places[path][0], self._token.start)
        if self._token.text == "[" and self._token.kind == SYMBOL:
            self._list(scope, field, path)
        else:
            self._one(scope, field, path, name)

    def _missing_colon(self, name: Token, path: str) -> bool:
        """Report it; True when a value follows and can be read."""
        token = self._token
        hint = "write ':' instead of '='" if token.text == "=" else f"write `{name.text}: value`"
        edit = Edit(name.end, name.end, ":", "Add ':'")
        if token.text == "=":
            edit = replaced(token, ":")
        message = f"expected ':' after '{name.text}', found {shown(token)}"
        self._mistake(token, message, hint, path, edit=edit)
        if token.text in ("{", "<"):
            self._skip_block()
            return False
        if token.text == "=":
            self._advance()
            return True
        if token.kind == END or token.kind == SYMBOL:
            return token.text == "["
        return self._tokens[self._index + 1].text != ":"

    def _check_single(self, scope: _Scope, field: FieldInfo, name: Token, path: str) -> None:
        if field.is_repeated:
            return
        first = scope.seen.get(field.name)
        if first is not None:
            self._note(
                Mistake(
                    name.start,
                    f"'{field.name}' is given twice {scope.where}",
                    "keep one of them",
                    path,
                    is_removable=not field.is_message,
                )
            )
        scope.seen[field.name] = name
        if not field.oneof:
            return
        other = scope.seen.get(f"oneof {field.oneof}")
        if other is not None and other.text != field.name:
            self._mistake(
                name,
                f"'{field.name}' and '{other.text}' exclude each other",
                f"keep one of them: both choose the {field.oneof.replace('_', ' ')}",
                path,
            )
        scope.seen[f"oneof {field.oneof}"] = name

    def _unknown_field(self, scope: _Scope, name: Token) -> None:
        enclosing = []
        outer = scope.outer
        while outer is not None:
            enclosing.append(outer.info)
            outer = outer.outer
        hint, meant = field_hint(name.text, scope.info, enclosing)
        self._note(
            Mistake(
                name.start,
                f"unknown field '{name.text}' {scope.where}",
                hint,
                scope.path + name.text,
                "REP-015",
                edit=replaced(name, meant) if meant else None,
            )
        )
        self._take(":")
        if self._token.text in CLOSER and self._token.kind == SYMBOL:
            self._skip_block()
        elif self._token.kind != SYMBOL:
            self._advance()
            while self._token.kind == STRING:
                self._advance()

    def _list(self, scope: _Scope, field: FieldInfo, path: str) -> None:
        opened = self._advance()
        if not field.is_repeated:
            kind = "section" if field.is_message else "value"
            self._mistake(
                opened, f"'{field.name}' takes one {kind}, not a list", "remove '[' and ']'", path
            )
        if self._take("]"):
            return
        while True:
            if self._token.kind == END:
                message = f"'[' of '{field.name}' is never closed"
                self._mistake(opened, message, "add ']'", path)
                return
            before = self._index
            self._one(scope, field, path, self._token)
            if self._take("]"):
                return
            comma = self._token
            if not self._take(","):
                if not self._between_elements(field, path) or self._index == before:
                    return
            elif self._token.text == "]":
                message = f"the list of '{field.name}' ends with a ','"
                edit = replaced(comma, "")
                self._mistake(self._token, message, "remove the last ','", path, edit=edit)
                self._advance()
                return

    def _between_elements(self, field: FieldInfo, path: str) -> bool:
        """Neither ',' nor ']' follows an element. True when the list goes on."""
        token = self._token
        self._mistake(
            token,
            f"expected ',' or ']' in the list of '{field.name}', found {shown(token)}",
            "separate the elements with ','",
            path,
            edit=_comma(token),
        )
        if token.kind == IDENT and self._tokens[self._index + 1].text in (":", "{", "<"):
            return False
        if token.kind == SYMBOL and token.text not in ("{", "<"):
            return token.text == ";" and bool(self._advance())
        return token.kind != END

    def _one(self, scope: _Scope, field: FieldInfo, path: str, anchor: Token) -> None:
        """Read one value; `anchor` is where a person would look for it."""
        if field.is_map:
            self._map_entry(scope, field, path, anchor)
            return
        if field.is_repeated:
            count = scope.counts.get(path, 0)
            scope.counts[path] = count + 1
            path = f"{path}[{count}]"
            self.places[path] = (anchor.start, self._token.start)
        if field.message is not None:
            self._open(scope, field.message, path)
        else:
            self._scalar(field, path)

    def _map_entry(self, scope: _Scope, field: FieldInfo, path: str, anchor: Token) -> None:
        """The key is known only once the entry has been read: then its places get their names."""
        message = field.message
        if message is None:
            return
        outside = self.places
        inside: dict[str, tuple[int, int]] = {}
        self.places = inside
        start = self._token.start
        self._open(scope, message, path)
        self.places = outside
        key_place = inside.get(f"{path}.key")
        key: object = "" if message.fields["key"].kind == "string" else 0
        if key_place is not None:
            key = scalars.key_at(self._tokens, key_place[1], key)
        entry = map_path(path, key)
        if entry in outside:
            self._note(_double_key(path, entry, key, anchor))
        value = inside.get(f"{path}.value")
        outside[entry] = (anchor.start, value[1] if value is not None else start)
        self._rename(inside, path, entry)

    def _rename(self, inside: dict[str, tuple[int, int]], path: str, entry: str) -> None:
        prefix = f"{path}.value."
        for name, place in inside.items():
            if name.startswith(prefix):
                self.places[f"{entry}.{name[len(prefix) :]}"] = place
        for index, mistake in enumerate(self.mistakes):
            if mistake.field == f"{path}.value" or mistake.field.startswith(prefix):
                field = entry + mistake.field[len(prefix) - 1 :]
                self.mistakes[index] = replace(mistake, field=field)

    def _open(self, scope: _Scope, info: MessageInfo, path: str) -> None:
        token = self._token
        if token.text not in ("{", "<"):
            name = path.rpartition(".")[2].partition("[")[0]
            message = f"expected '{{' to open '{path}', found {shown(token)}"
            self._mistake(token, message, f"write {name} {{ ... }}", path)
            if token.kind not in (SYMBOL, END) and self._tokens[self._index + 1].text != ":":
                self._advance()
            return
        self._advance()
        self._message(_Scope(info, f"{path}.", CLOSER[token.text], token, scope, {}, {}))

    def _scalar(self, field: FieldInfo, path: str) -> None:
        result = scalars.read(self._tokens, self._index, field)
        if result.problem is not None:
            problem = result.problem
            self._note(
                Mistake(
                    self._token.start,
                    problem.message,
                    problem.hint,
                    path,
                    problem.code,
                    problem.is_certain,
                    problem.is_warning,
                    problem.is_fatal,
                    problem.edit,
                )
            )
        if result.opens_block:
            self._skip_block()
        else:
            self._index += result.used


def _comma(token: Token) -> Edit | None:
    if token.text == ";":
        return replaced(token, ",")
    if token.kind in (SYMBOL, END) and token.text not in ("{", "<"):
        return None
    return Edit(token.start, token.start, ", ", "Add ','")


def _double_key(path: str, entry: str, key: object, anchor: Token) -> Mistake:
    if path.endswith(".input_map"):
        return Mistake(
            anchor.start,
            f"input {key!r} is mapped to multiple ensemble tensors in '{path}'",
            "keep one input_map entry for each input",
            entry,
            "VAL-34",
            is_certain=True,
        )
    return Mistake(
        anchor.start,
        f"key {key!r} is given twice in '{path}'",
        "the last one counts; keep one of them",
        entry,
        is_certain=True,
        is_warning=True,
    )
