"""Scalar values of config.pbtxt: is this token a value of that field, and if not, what is meant.

Numbers and booleans are judged by the functions of `google.protobuf.text_format`, so that both
agree. Pure functions; any thread.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from google.protobuf import text_encoding, text_format

from serving.config.repair import Edit
from serving.config.schema import INTEGER_RANGES, FieldInfo
from serving.config.suggest import enum_hint, enum_meant
from serving.config.tokens import END, IDENT, NUMBER, PLACEHOLDER, STRING, SYMBOL, Token

_EXPECTED = {
    "int32": "an integer",
    "int64": "an integer",
    "uint32": "an integer >= 0",
    "uint64": "an integer >= 0",
    "float": "a number",
    "bool": "true or false",
    "string": "a string in quotes",
}
_EXAMPLES = {
    "int32": "1",
    "int64": "1",
    "uint32": "1",
    "uint64": "1",
    "float": "0.5",
    "bool": "true",
    "string": '"text"',
}
_BOOLEAN_WORDS = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}
_ESCAPED = re.compile(
    r"(?:[^\\]|\\(?:[abfnrtv\\?'\"]|[0-3]?[0-7]{1,2}|[xX][0-9a-fA-F]{1,2}"
    r"|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}))*"
)
_BACKSLASH = re.compile(r"\\(?!(?:[\\?'\"]))|(\\.)", re.DOTALL)
"""A backslash before neither a quote nor a backslash, or one such pair."""


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    hint: str = ""
    code: str = "REP-014"
    is_certain: bool = False
    is_warning: bool = False
    is_fatal: bool = False
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    used: int
    """Tokens that belong to the value."""
    problem: Problem | None = None
    opens_block: bool = False
    """The value is a bracket: the caller skips to its end."""


def read(tokens: list[Token], index: int, field: FieldInfo) -> Reading:
    """Read one scalar that starts at `index`."""
    token = tokens[index]
    following = tokens[min(index + 1, len(tokens) - 1)]
    placeholder = _placeholder(token, following)
    if placeholder:
        used = 1 if token.kind == PLACEHOLDER else 2
        return Reading(used, _unfilled(placeholder, field))
    if token.kind == SYMBOL and token.text in "{<[":
        return Reading(0, _wrong(token, field), opens_block=True)
    starts_field = token.kind == IDENT and following.text in (":", "{", "<")
    if token.kind in (SYMBOL, END) or starts_field:
        return Reading(0, _wrong(token, field))
    if field.kind == "string":
        return _string(tokens, index, field)
    return Reading(1, _check(token, field))


def key_at(tokens: list[Token], offset: int, default: object) -> object:
    """The map key whose token starts at `offset`; `default` where it is not readable."""
    low = bisect_left(tokens, offset, key=lambda token: token.start)
    if isinstance(default, str):
        parts = []
        while tokens[low].kind == STRING:
            text = tokens[low].text
            parts.append(_unescape(text) if _readable(text) else text.encode())
            low += 1
        return b"".join(parts).decode("utf-8", "replace") if parts else default
    try:
        return _integer(tokens[low].text)
    except ValueError:
        return default


def _placeholder(token: Token, following: Token) -> str:
    if token.kind == PLACEHOLDER:
        return token.text
    if token.kind in (IDENT, NUMBER) and following.kind == PLACEHOLDER:
        return token.text + following.text if following.start == token.end else ""
    return ""


def _unfilled(placeholder: str, field: FieldInfo) -> Problem:
    return Problem(
        f"the placeholder {placeholder} of '{field.name}' has not been filled in",
        f"replace it with {_expected(field)}",
        "C03",
    )


def _expected(field: FieldInfo) -> str:
    if field.kind == "enum":
        return f"a name such as {next(reversed(field.enum_numbers))}"
    return _EXPECTED[field.kind]


def _wrong(token: Token, field: FieldInfo) -> Problem:
    found = "the end of the file" if token.kind == END else token.text
    if token.kind not in (END, STRING):
        found = f"'{found}'"
    message = f"expected {_expected(field)} for '{field.name}', found {found}"
    return Problem(message, _hint(token, field) or _example(field), edit=_edit(token, field))


def _edit(token: Token, field: FieldInfo) -> Edit | None:
    """Write what the token most likely means as a value of the field."""
    meant = _meant(token, field)
    return Edit(token.start, token.end, meant, f"Write {meant}") if meant else None


def _meant(token: Token, field: FieldInfo) -> str:
    if token.kind not in (IDENT, NUMBER, STRING):
        return ""
    if field.kind == "enum":
        return enum_meant(token.text, field)
    if field.kind == "string":
        return f'"{token.text}"' if token.kind != STRING else ""
    bare = token.text.strip("\"'")
    if field.kind == "bool":
        return _BOOLEAN_WORDS.get(bare.casefold(), "")
    if token.kind == STRING and re.fullmatch(r"-?[0-9.]+", bare):
        return bare if _check(Token(NUMBER, bare, token.start), field) is None else ""
    return ""


def _example(field: FieldInfo) -> str:
    value = _EXAMPLES.get(field.kind) or next(reversed(field.enum_numbers))
    return f"e.g. {field.name}: {value}"


def _hint(token: Token, field: FieldInfo) -> str:
    if field.kind == "enum" and token.kind in (IDENT, STRING, NUMBER):
        return enum_hint(token.text, field)
    if field.kind == "string" and token.kind in (IDENT, NUMBER):
        return f'write "{token.text}"'
    if token.kind == STRING and field.kind != "string":
        meant = _meant(token, field)
        return f"write {meant} without quotes" if meant else ""
    if field.kind == "bool" and token.text.casefold() in _BOOLEAN_WORDS:
        return f"write {_BOOLEAN_WORDS[token.text.casefold()]}"
    if token.text == "[" and not field.is_repeated:
        return f"'{field.name}' takes one value, not a list"
    return ""


def _string(tokens: list[Token], index: int, field: FieldInfo) -> Reading:
    token = tokens[index]
    if token.kind != STRING:
        return Reading(1, _wrong(token, field))
    used = 0
    problem: Problem | None = None
    while tokens[index + used].kind == STRING:
        part = tokens[index + used]
        problem = problem or _check_string(part, field)
        used += 1
    return Reading(used, problem)


def _check_string(token: Token, field: FieldInfo) -> Problem | None:
    text = token.text
    if len(text) < 2 or text[-1] != text[0]:
        return Problem(
            f"the string of '{field.name}' is never closed on its line",
            f"add {text[0]} at its end",
            edit=_closed(token),
        )
    if "\0" in text:
        return Problem(
            f"the string of '{field.name}' holds a NUL character",
            "write \\000 if it is meant, else remove it",
            is_fatal=True,
        )
    if "\\" in text and not _readable(text):
        return Problem(
            f"bad escape in the string of '{field.name}': {text}",
            "write a backslash as \\\\",
            is_fatal=True,
            edit=_escaped(token),
        )
    if "${" in text:
        return Problem(
            f"the string of '{field.name}' still holds a placeholder: {text}",
            "fill in the template, if it is one",
            "C03",
            is_certain=True,
            is_warning=True,
        )
    return None


def _closed(token: Token) -> Edit | None:
    # What stands behind the opening quote may be more than the string: only a bare word is sure.
    if not re.fullmatch(r"[\"'][\w./-]+", token.text):
        return None
    return Edit(token.end, token.end, token.text[0], f"Add {token.text[0]}")


def _escaped(token: Token) -> Edit | None:
    """Every backslash that starts no escape, written twice."""
    text = token.text
    inner = _BACKSLASH.sub(lambda match: match.group(1) or "\\\\", text[1:-1])
    meant = f"{text[0]}{inner}{text[-1]}"
    return Edit(token.start, token.end, meant, f"Write {meant}") if _readable(meant) else None


def _readable(text: str) -> bool:
    # Python's parser keeps an unknown escape with a warning; Triton's refuses it.
    if not _ESCAPED.fullmatch(text[1:-1]):
        return False
    try:
        _unescape(text).decode("utf-8")
    except ValueError:
        return False
    return True


def _unescape(text: str) -> bytes:
    return text_encoding.CUnescape(text[1:-1]) if "\\" in text else text[1:-1].encode()


def _check(token: Token, field: FieldInfo) -> Problem | None:
    """None when the token is a value of the field (numbers, booleans, enums)."""
    if token.kind == NUMBER and (token.text[:1] == "+" or "_" in token.text):
        return _pythonic(token, field)
    try:
        if field.kind == "enum":
            return _check_enum(token, field)
        if field.kind == "bool":
            text_format.ParseBool(token.text)
        elif field.kind == "float":
            text_format.ParseFloat(token.text)
        else:
            return _check_integer(token, field)
    except ValueError:
        return _wrong(token, field)
    return None


def _pythonic(token: Token, field: FieldInfo) -> Problem:
    # Python's parser reads these numbers, Triton's does not.
    bare = token.text.lstrip("+").replace("_", "")
    return Problem(
        f"'{token.text}' is no number for '{field.name}': no '+' before it, no '_' in it",
        f"write {bare}",
        is_fatal=True,
        edit=Edit(token.start, token.end, bare, f"Write {bare}") if bare else None,
    )


def _check_integer(token: Token, field: FieldInfo) -> Problem | None:
    value = _integer(token.text)
    low, high = INTEGER_RANGES[field.kind]
    if low <= value <= high:
        return None
    return Problem(f"{value} is out of range for '{field.name}'", f"it holds {low} to {high}")


def _integer(text: str) -> int:
    """As the text format reads integers (0x hexadecimal, leading 0 octal), without a range."""
    octal = re.fullmatch(r"(-?)0([0-9]+)", text)
    return int(f"{octal.group(1)}0o{octal.group(2)}" if octal else text, 0)


def _check_enum(token: Token, field: FieldInfo) -> Problem | None:
    if token.text in field.enum_numbers:
        return None
    number = int(token.text, 0)
    if number in field.enum_numbers.values():
        return None
    return Problem(
        f"{number} is not a value of '{field.name}'",
        f"one of {', '.join(field.enum_numbers)}",
        is_certain=True,
    )
