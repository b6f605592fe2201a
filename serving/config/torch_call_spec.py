"""Names for the tensors of a PT2 archive, by its call specification (PT-09..11).

A call specification is the pair of tree structures with which `torch.export` recorded how forward
is called and what it returns; the tensors are the leaves, depth first: positional arguments, then
keyword arguments; of a dictionary in the order in which it was built. Pure; any thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from serving.config.suggest import nearest
from serving.errors import InvalidArgumentError

_ORDINAL = re.compile(r"(?:(?!__).)+__(\d{1,9})", re.DOTALL)  # after the first __
_SEQUENCES = frozenset({"builtins.tuple", "builtins.list"})
_DICTIONARIES = frozenset({"builtins.dict", "collections.OrderedDict"})
_MOST_NAMES = 16
_MAX_DEPTH = 64
_MAX_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class CallSpec:
    """The tensors of one model, in flattened order."""

    inputs: tuple[str, ...]
    """Forward names: ARGS[0], ARGS[1][key], KWARGS[name]."""
    outputs: tuple[str, ...]
    """RESULT, RESULT[0], RESULT[key][1]."""
    nested: tuple[str, ...] = ()
    """Those that lie deeper than a plain argument or a plain result."""


def parse_call_spec(inputs: str, outputs: str) -> CallSpec:
    """From the two JSON texts of `loader.get_call_spec()`.

    Raises: ValueError saying what about the structure is not supported.
    """
    called = _children(_root(inputs))
    if len(called) != 2 or called[0].get("type") not in _SEQUENCES:
        raise ValueError("its call specification is not a pair of arguments and keyword arguments")
    named = [*_leaves(called[0], "ARGS", 0), *_leaves(called[1], "KWARGS", 0)]
    results = list(_leaves(_root(outputs), "RESULT", 0))
    if not results:
        raise ValueError("its forward returns no tensor")
    return CallSpec(
        tuple(name for name, _ in named),
        tuple(name for name, _ in results),
        tuple(name for name, depth in (*named, *results) if depth > 1),
    )


def ordinal_names(kind: str, count: int) -> list[str]:
    """`kind`: INPUT or OUTPUT."""
    return [f"{kind}__{index}" for index in range(count)]


def ordinal_of(name: str) -> int | None:
    """The number at the end of a name like INPUT__0 (PT-03)."""
    match = _ORDINAL.fullmatch(name)
    return int(match.group(1)) if match is not None else None


def position(name: str, forward_names: Sequence[str]) -> int | None:
    """Which tensor a name of the config means; None for a name that is none. May be out of range
    for an ordinal name.
    """
    return forward_names.index(name) if name in forward_names else ordinal_of(name)


def positions(kind: str, names: Iterable[str], forward_names: Sequence[str]) -> dict[str, int]:
    """Which tensor each name means. `kind`: input or output.

    Raises: InvalidArgumentError for a name that means none, with the names that there are.
    """
    found: dict[str, int] = {}
    for name in names:
        index = position(name, forward_names)
        if index is None or index >= len(forward_names):
            raise InvalidArgumentError(unknown_name(kind, name, forward_names))
        found[name] = index
    return found


def unknown_name(kind: str, name: str, forward_names: Sequence[str]) -> str:
    """One sentence about a name of the config that means no tensor of the archive."""
    ordinal = ordinal_names(kind.upper(), len(forward_names))
    number = ordinal_of(name)
    if number is not None:
        problem = f"{kind} '{name}' is number {number}, counted from 0"
    else:
        close = nearest(name, [*forward_names, *ordinal])
        problem = f"{kind} '{name}' names none of its tensors"
        problem += f" (did you mean '{close}'?)" if close else ""
    pairs = [f"{a} or {b}" for a, b in zip(ordinal, forward_names, strict=True)]
    return f"{problem}; the {len(pairs)} {kind}s are {_listed(pairs)}"


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_MOST_NAMES])
    return f"{shown} and {len(texts) - _MOST_NAMES} more" if len(texts) > _MOST_NAMES else shown


def _root(text: str) -> dict[str, Any]:
    try:
        protocol, root = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError("its call specification cannot be read") from error
    if protocol != 1 or not isinstance(root, dict):
        raise ValueError(f"its call specification has the unknown form {protocol!r}")
    return root


def _children(node: dict[str, Any]) -> list[dict[str, Any]]:
    children = node.get("children_spec")
    if not isinstance(children, list) or not all(isinstance(item, dict) for item in children):
        raise ValueError("its call specification cannot be read")
    return children


def _leaves(node: dict[str, Any], name: str, depth: int) -> Iterator[tuple[str, int]]:
    """(forward name, depth) of each tensor below `node`."""
    kind = node.get("type")
    if depth > _MAX_DEPTH or len(name) > _MAX_CHARACTERS:
        raise ValueError(f"{name[:64]}... is nested more than {_MAX_DEPTH} deep, or has long keys")
    if kind is None:
        yield name, depth
        return
    children = _children(node)
    if kind in _SEQUENCES:
        keys: Sequence[object] = range(len(children))
    elif kind in _DICTIONARIES:
        keys = _keys(node, name)
    else:
        raise ValueError(
            f"{name} is a {kind}: use tensors, and dict, tuple and list of tensors only"
        )
    if len(keys) != len(children):
        raise ValueError("its call specification cannot be read")
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{name}[{key}]", depth + 1)


def _keys(node: dict[str, Any], name: str) -> list[str]:
    try:
        keys = json.loads(node.get("context") or "[]")
    except (ValueError, TypeError) as error:
        raise ValueError("its call specification cannot be read") from error
    for key in keys:
        if not isinstance(key, str) or not key:
            raise ValueError(f"the dictionary {name} has the key {key!r}: keys must be texts")
        if any(char in ",[]" or char.isspace() or not char.isprintable() for char in key):
            raise ValueError(
                f"the dictionary {name} has the key {key!r}: keys must not hold ',', '[', ']', "
                "blanks or characters that cannot be printed"
            )
    return list(keys)
