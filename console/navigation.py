"""The main navigation: what it shows, to whom, and which entry is the current one."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Group:
    heading: str
    links: list[Link]


MENU: list[tuple[str, list[Entry]]] = [
    ("", [Entry("Overview", "core:overview", "/")]),
    (
        "Serve",
        [
            Entry("Models", "catalog:models", "/models/"),
            Entry("Deployments", "deployments:list", "/deployments/"),
        ],
    ),
    ("Repository", [Entry("Files", "repository:browse", "/repository/", arguments=("",))]),
    (
        "Observe",
        [
            Entry("Live metrics", "monitoring:live", "/live/"),
            Entry("Workers & GPUs", "fleet:workers", "/workers/"),
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


def build_menu(path: str, role: Role | None) -> list[Group]:
    """The groups a person of this role sees on the page at `path`."""
    groups = []
    for heading, entries in MENU:
        links = [
            Link(entry.label, url, _is_current(entry, path))
            for entry in entries
            if role is not None and role.rank >= entry.role.rank and (url := _url(entry))
        ]
        if links:
            groups.append(Group(heading, links))
    return groups


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
