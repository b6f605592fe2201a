"""The main navigation: what it shows, to whom, and which entry is the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.urls import NoReverseMatch, reverse

from console.core.roles import Role


@dataclass(frozen=True, slots=True)
class Entry:
    label: str
    route: str
    section: str
    """A path that starts with this belongs to the entry ("/" stands for itself only)."""
    role: Role = Role.VIEWER
    arguments: tuple[str, ...] = ()
    count: str = ""
    """Which of the counts stands behind the label."""


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    url: str
    is_current: bool
    count_name: str = ""
    count: int | None = None
    """None: not counted, or nothing to count."""


@dataclass(frozen=True, slots=True)
class Group:
    heading: str
    links: list[Link]


MENU: list[tuple[str, list[Entry]]] = [
    ("", [Entry("Overview", "core:overview", "/")]),
    (
        "Serve",
        [
            Entry("Models", "catalog:models", "/models/", count="models"),
            Entry("Deployments", "deployments:list", "/deployments/", count="deployments"),
        ],
    ),
    (
        "Repository",
        [
            Entry("Files", "repository:browse", "/repository/", arguments=("",)),
            Entry("Engine builds", "engines:list", "/engines/"),
        ],
    ),
    (
        "Observe",
        [
            Entry("Live metrics", "monitoring:live", "/live/"),
            Entry("Workers & GPUs", "fleet:workers", "/workers/", count="workers"),
            Entry("Backends", "backends:list", "/backends/"),
        ],
    ),
    (
        "Admin",
        [
            Entry("Users", "accounts:users", "/settings/users/", Role.ADMIN),
            Entry("API tokens", "accounts:tokens", "/settings/tokens/"),
            Entry("Audit", "core:audit", "/settings/audit/", Role.ADMIN),
        ],
    ),
]


def build_menu(
    path: str, role: Role | None, read_counts: Callable[[], Mapping[str, int]]
) -> list[Group]:
    """The groups a person of this role sees on the page at `path`."""
    counts = read_counts() if role is not None else {}
    groups = []
    for heading, entries in MENU:
        links = [
            _link(entry, url, path, counts)
            for entry in entries
            if role is not None and role.rank >= entry.role.rank and (url := _url(entry))
        ]
        if links:
            groups.append(Group(heading, links))
    return groups


def _link(entry: Entry, url: str, path: str, counts: Mapping[str, int]) -> Link:
    count = counts.get(entry.count) or None
    return Link(entry.label, url, _is_current(entry, path), entry.count, count)


def _is_current(entry: Entry, path: str) -> bool:
    return path == "/" if entry.section == "/" else path.startswith(entry.section)


def _url(entry: Entry) -> str:
    """ "" for an app without pages: its entry is left out."""
    for arguments in ((), entry.arguments):
        try:
            return reverse(entry.route, args=arguments)
        except NoReverseMatch:
            continue
    return ""
