"""The members of an OpenAI request: typed access, and an error that names the member. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.errors import InvalidArgumentError
from serving.protocol.v2_json import parse_json


class MemberError(InvalidArgumentError):
    """What is wrong with one member; OpenAI's errors carry its name as `param`."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class Members:
    """What a request holds; each `take` removes a member, so that the rest is what nobody knows.

    null counts as absent, as it does at OpenAI.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in values.items() if value is not None}

    @classmethod
    def parse(cls, body: memoryview) -> Members:
        """Raises InvalidArgumentError."""
        values = parse_json(body, "request body")
        if not isinstance(values, dict):
            raise InvalidArgumentError("the request body must be a JSON object")
        return cls(values)

    def take(self, name: str) -> Any:
        """None where it is absent."""
        return self._left.pop(name, None)

    def drop(self, *names: str) -> None:
        for name in names:
            self._left.pop(name, None)

    def rest(self) -> dict[str, Any]:
        return dict(self._left)

    def text(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str) or not value:
            raise MemberError(name, f"'{name}' must be given, as a string that is not empty")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise MemberError(name, f"'{name}' must be true or false")
        return bool(value)

    def whole(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise MemberError(name, f"'{name}' must be a whole number from {low} to {high}")
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:
            raise MemberError(name, f"'{name}' must be a number from {low:g} to {high:g}")
        return float(value)

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A string, or a list of up to `most` of them, none of them empty."""
        value = self.take(name)
        if value is None:
            return ()
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) and item for item in values) or len(values) > most:
            raise MemberError(
                name, f"'{name}' must be a string or a list of up to {most} strings, none empty"
            )
        return tuple(values)

    def refuse(self, name: str, *harmless: object) -> None:
        """Take a member that this server cannot honour; only `harmless` values pass."""
        value = self.take(name)
        if value is None or any(value == item and type(value) is type(item) for item in harmless):
            return
        allowed = " or ".join(repr(item) for item in harmless)
        hint = f"leave it out, or give {allowed}" if allowed else "leave it out"
        raise MemberError(name, f"'{name}' is not supported by this server: {hint}")
