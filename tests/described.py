"""Holds an OpenAPI description true: everything it describes is asked, as schemathesis invents it.

SCHEMATHESIS_EXAMPLES makes the run longer: so many requests for each operation. The examples of the
description come first, word for word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core import NOT_SET

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "5"))
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@dataclass
class Asked:
    seen: set[str] = field(default_factory=set)
    """Operations, as `GET /path`."""
    succeeded: set[str] = field(default_factory=set)
    """Those that gave a 2xx at least once."""
    failures: list[str] = field(default_factory=list)
    """Answers that are not as described."""


@dataclass(frozen=True)
class Operations:
    """All operations of a description, and where their path parameters lead to something."""

    schema: Any
    places: Callable[[str], Mapping[str, Any]]
    """Path parameters for an operation that exist; others are invented a third of the time."""
    adjust: Callable[[Any], None] = lambda case: None
    """Last changes to a case, whatever was invented."""
    headers: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Entered for each operation."""

    def ask(self) -> Asked:
        self.schema.config.generation.update(
            modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        )
        asked = Asked()
        for found in self.schema.get_all_operations():
            operation = found.ok()
            asked.seen.add(operation.label)
            with self.around():
                try:
                    self._ask_one(operation, asked)
                except (Exception, BaseExceptionGroup) as error:
                    asked.failures.append(f"{operation.label}: {error}")
        return asked

    def _ask_one(self, operation: Any, asked: Asked) -> None:
        self._call(_example(operation), asked, is_there=True)

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), is_there=st.sampled_from([True, True, False]))
        def invented(case: Any, is_there: bool) -> None:
            self._call(case, asked, is_there=is_there)

        invented()

    def _call(self, case: Any, asked: Asked, *, is_there: bool) -> None:
        label = case.operation.label
        if is_there:
            places = self.places(label)
            for name in (case.path_parameters or {}).keys() & places.keys():
                case.path_parameters[name] = places[name]
        self.adjust(case)
        checks = [CHECKS.get_one(name) for name in CHECKED]
        answer = case.call_and_validate(headers=dict(self.headers) or None, checks=checks)
        if answer.status_code < 300:
            asked.succeeded.add(label)


def _example(operation: Any) -> Any:
    """The request that the description itself gives as an example."""
    raw = operation.definition.raw
    given_values: dict[str, dict[str, Any]] = {"header": {}, "query": {}, "path": {}, "cookie": {}}
    for parameter in raw.get("parameters", []):
        for example in parameter.get("examples", {}).values():
            given_values[parameter["in"]].setdefault(parameter["name"], str(example["value"]))
    body, media_type = NOT_SET, None
    for name, content in raw.get("requestBody", {}).get("content", {}).items():
        for example in content.get("examples", {}).values():
            body, media_type = example["value"], name
    if isinstance(body, str):
        body = body.encode()
    names = {item.name for item in operation.path_parameters}
    return operation.Case(
        path_parameters=dict.fromkeys(names, ""),
        headers=given_values["header"],
        query=given_values["query"],
        body=body,
        media_type=media_type,
    )
