"""Who needs whom: ensembles and the models they are made of, as a graph of names.

Pure: no file, no task. It answers in which order models load, who becomes unavailable with a model,
and which parts an unload takes along. Loop thread. Source: spec REP-058, REP-066.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError


def parts_of(config: pb.ModelConfig) -> frozenset[str]:
    """The models that an ensemble calls; empty for any other model."""
    return frozenset(step.model_name for step in config.ensemble_scheduling.step if step.model_name)


class DependencyGraph:
    """The known models and their direct parts. A part need not be known itself."""

    def __init__(self, parts: Mapping[str, Iterable[str]] = MappingProxyType({})) -> None:
        self._parts: dict[str, frozenset[str]] = {}
        for name, its_parts in parts.items():
            self.put(name, its_parts)

    def __repr__(self) -> str:
        shown = {name: sorted(parts) for name, parts in sorted(self._parts.items()) if parts}
        return f"<DependencyGraph {shown}>"

    def put(self, name: str, parts: Iterable[str]) -> None:
        """Raises InvalidArgumentError, and changes nothing, if the model would need itself."""
        fresh = frozenset(parts)
        way = self._way_back(name, fresh)
        if way:
            raise InvalidArgumentError(
                f"model '{name}' needs itself: {' > '.join(way)}; an ensemble must not be a part "
                "of its own parts"
            )
        self._parts[name] = fresh

    def remove(self, name: str) -> None:
        self._parts.pop(name, None)

    def parts(self, name: str) -> frozenset[str]:
        """Direct ones."""
        return self._parts.get(name, frozenset())

    def all_parts(self, name: str) -> set[str]:
        """Parts, their parts, and so on."""
        return _reach(name, self.parts)

    def users(self, name: str) -> set[str]:
        """Models of which it is a direct part."""
        return {user for user, parts in self._parts.items() if name in parts}

    def all_users(self, name: str) -> set[str]:
        """Whoever becomes unavailable with this model."""
        return _reach(name, self.users)

    def load_order(self, names: Iterable[str]) -> list[list[str]]:
        """Groups to load one after the other; the members of a group do not need each other.

        Only `names` are ordered; a part that is not among them is taken as there.
        """
        waiting = set(names)
        needs = {name: self.all_parts(name) for name in waiting}
        groups = []
        while waiting:
            # There is always one: `put` lets no circle in.
            group = sorted(name for name in waiting if not needs[name] & waiting)
            groups.append(group)
            waiting.difference_update(group)
        return groups

    def unload_order(self, name: str, *, with_parts: bool, asked_for: Collection[str]) -> list[str]:
        """What an unload of `name` takes out of service, users before their parts.

        `with_parts` (unload_dependents): parts that nobody has loaded by name (`asked_for`) and
        that no other model uses go too, and then their parts.
        """
        leaving = [name]
        if not with_parts:
            return leaving
        # A list that grows while it is read: parts of parts follow.
        for gone in leaving:
            for part in sorted(self.parts(gone)):
                is_free = not (self.users(part) - set(leaving))
                if is_free and part not in asked_for and part not in leaving:
                    leaving.append(part)
        return leaving

    def _way_back(self, name: str, parts: frozenset[str]) -> list[str]:
        """From `name` over one of `parts` to `name`; empty where there is no way."""
        ways = [[name, part] for part in sorted(parts)]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            if way[-1] == name:
                return way
            if way[-1] not in seen:
                seen.add(way[-1])
                ways += [[*way, part] for part in sorted(self.parts(way[-1]))]
        return []


def _reach(name: str, step: Callable[[str], Collection[str]]) -> set[str]:
    """Everything that `step` leads to, over any number of steps."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        fresh = set(step(waiting.pop())) - found
        found |= fresh
        waiting += fresh
    return found
