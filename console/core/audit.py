"""Writes and reads the audit log; every service that changes something calls `record`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from django.db.models import Q, QuerySet

from console.core.models import AuditEntry
from serving.errors import ServingError

Service = TypeVar("Service", bound=Callable[..., Any])

SYSTEM = "system"
WHO = ("people", SYSTEM)


def record(
    actor: Any, action: str, target: str = "", detail: Mapping[str, Any] | None = None
) -> AuditEntry:
    """Notes one deed. `actor` is a user, or None for the system; `action` a verb and a noun."""
    person = actor if actor is not None and actor.is_authenticated else None
    return AuditEntry.objects.create(
        actor=person,
        actor_name=person.get_username() if person else SYSTEM,
        action=action,
        # PostgreSQL stores no NUL; a name from an address may hold one.
        target=target[:255].replace("\0", "\ufffd"),
        detail=dict(detail or {}),
    )


def entries(*, search: str = "", who: str = "") -> QuerySet[AuditEntry]:
    """Newest first; `search` looks at actor, action and target; `who` is one of WHO, or all."""
    rows = AuditEntry.objects.all()
    # The entry of a person whose account is gone keeps the name.
    by_system = Q(actor=None, actor_name=SYSTEM)
    if who:
        rows = rows.filter(by_system if who == SYSTEM else ~by_system)
    # PostgreSQL takes no NUL; nothing is called so.
    for word in search.replace("\0", " ").split():
        rows = rows.filter(
            Q(actor_name__icontains=word) | Q(action__icontains=word) | Q(target__icontains=word)
        )
    return rows


def records_refusals(action: str, target: str) -> Callable[[Service], Service]:
    """Notes a refused attempt too: `@records_refusals("load model", "model")`.

    `target` names the keyword argument that says what the deed is about. Outermost decorator, so
    that the entry outlives the transaction that was rolled back.
    """

    def decorate(service: Service) -> Service:
        @wraps(service)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            try:
                return service(*args, **kwargs)
            except ServingError as error:
                record(
                    kwargs["actor"],
                    f"{action} refused",
                    str(kwargs[target]),
                    {"error": error.message},
                )
                raise

        return recorded  # type: ignore[return-value]

    return decorate
