"""What every known model version is doing, and which Model answers a request.

Decisions only: no file, no thread, no await. The manager reports what happened and the lifecycle
answers with the models that are to be drained. Entered by the loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.errors import NotFoundError, UnavailableError
from serving.instance import gpu_use
from serving.repository.sequence_holders import SequenceHolders
from serving.repository.states import UNLOADED, IndexEntry, VersionState, is_unloaded, left_running

if TYPE_CHECKING:
    from serving.model import Model


@dataclass(slots=True)
class VersionRecord:
    version: int
    state: VersionState
    reason: str = ""
    model: Model | None = None
    """What serves (READY) or drains (UNLOADING); None otherwise."""
    note: str = ""
    """See `IndexEntry.note`."""
    backend: str = ""
    """By the config of the last load, whatever became of it."""


class Lifecycle:
    def __init__(
        self,
        on_change: Callable[[IndexEntry], None] = lambda entry: None,
        *,
        namespace: str = "",
    ) -> None:
        self._on_change = on_change
        self.namespace = namespace
        self._records: dict[str, dict[int, VersionRecord]] = {}
        self._failures: dict[str, str] = {}
        """Models that failed before their versions were known, and nothing of them serves."""
        self._ready: dict[str, dict[int, Model]] = {}
        self._default: dict[str, Model] = {}
        self._holders = SequenceHolders()
        self._arriving: dict[str, str] = {}
        """Models whose files are still brought from elsewhere, and how far that is."""

    def __repr__(self) -> str:
        parts = [
            f"{entry.name}{'' if entry.version is None else f':{entry.version}'} {entry.state}"
            + (f" ({entry.reason})" if entry.reason else "")
            for entry in self.entries()
        ]
        return f"<Lifecycle {', '.join(parts) or 'empty'}>"

    # What a request sees

    def resolve(self, name: str, version: int = -1) -> Model:
        """The model that answers now. Raises NotFoundError or UnavailableError."""
        if version == -1:
            model = self._default.get(name)
            if model is not None:
                return model
        else:
            model = self._ready.get(name, {}).get(version)
            if model is not None:
                return model
        raise self._why_not(name, version)

    def sequence_holder(self, name: str, version: int, correlation_id: int | str) -> Model | None:
        """The model that goes on with a sequence, be it one that drains; None if none knows it."""
        return self._holders.find(name, version, correlation_id, self._ready.get(name, {}))

    def finishing_sequences(self, name: str, version: int) -> Model | None:
        """A model that has open sequences, those that serve first; None when there is none."""
        return self._holders.finishing(name, version, self._ready.get(name, {}))

    def _why_not(self, name: str, version: int) -> NotFoundError | UnavailableError:
        records = self._records.get(name)
        if records is None and name in self._arriving:
            return UnavailableError(
                f"Request for unknown model: '{name}' is not at ready state: it is still loading "
                f"({self._arriving[name]})"
            )
        if records is None and name not in self._failures:
            return NotFoundError(f"Request for unknown model: '{name}' is not found")
        if version == -1:
            loading = [item for item in (records or {}).values() if _is_coming(item)]
            if loading:
                return UnavailableError(
                    f"Request for unknown model: '{name}' version {loading[-1].version} is not at "
                    "ready state: it is still loading"
                )
            return NotFoundError(
                f"Request for unknown model: '{name}' has no available versions{self._fault(name)}"
            )
        record = (records or {}).get(version)
        if record is None:
            return NotFoundError(
                f"Request for unknown model: '{name}' version {version} is not found"
            )
        detail = f" ({record.reason})" if record.reason else ""
        return UnavailableError(
            f"Request for unknown model: '{name}' version {version} is not at ready state: "
            f"{record.state.value}{detail}"
        )

    def _fault(self, name: str) -> str:
        reasons = [self._failures.get(name, "")]
        reasons += [record.reason for record in self._records.get(name, {}).values()]
        told = [reason for reason in reasons if reason not in ("", UNLOADED)]
        return f" ({told[0]})" if told else ""

    # What an operator sees

    def is_known(self, name: str) -> bool:
        return name in self.names()

    def names(self) -> set[str]:
        return self._records.keys() | self._failures.keys() | self._arriving.keys()

    def ready_versions(self, name: str) -> list[int]:
        return sorted(self._ready.get(name, {}))

    def sound_versions(self, name: str) -> list[int]:
        """READY ones, but for those whose instances have died and will not come back."""
        ready = self._ready.get(name, {})
        return sorted(version for version, model in ready.items() if not model.has_failed)

    def ready_models(self, name: str = "") -> list[Model]:
        """Every READY version, sorted by name and version."""
        names = [name] if name else sorted(self._ready)
        return [model for item in names for _, model in sorted(self._ready.get(item, {}).items())]

    def all_models(self) -> list[Model]:
        """Those that serve and those that drain."""
        records = (record for item in self._records.values() for record in item.values())
        return [record.model for record in records if record.model is not None]

    def entries(self, name: str = "") -> Iterator[IndexEntry]:
        for item in [name] if name else sorted(self.names()):
            if item in self._arriving:
                yield self._arrival(item)
            elif item in self._failures:
                yield self._failed_entry(item, self._failures[item])
            for _, record in sorted(self._records.get(item, {}).items()):
                yield self._entry(item, record)

    def is_serving_everything(self) -> bool:
        """Strict readiness, REP-071: every known version READY, those unloaded excepted."""
        if self._failures:
            return False
        for records in self._records.values():
            for record in records.values():
                if record.state is VersionState.READY:
                    if record.model is None or not record.model.is_ready:
                        return False
                elif not is_unloaded(record.reason) and record.state is not VersionState.UNLOADING:
                    return False
        return True

    # What the manager reports

    def begin_fetch(self, name: str) -> None:
        self._arriving[name] = "downloading"
        self._on_change(self._arrival(name))

    def note_fetch(self, name: str, told: str) -> None:
        """Without effect when the download has ended meanwhile."""
        if name in self._arriving:
            self._arriving[name] = told
            self._on_change(self._arrival(name))

    def end_fetch(self, name: str) -> None:
        self._arriving.pop(name, None)

    def _arrival(self, name: str) -> IndexEntry:
        return IndexEntry(name, None, VersionState.LOADING.value, self._arriving[name])

    def begin_load(self, name: str, versions: Iterable[int], backend: str = "") -> None:
        """A version that serves stays READY until its successor is."""
        self._failures.pop(name, None)
        ready = self._ready.get(name, {})
        for version in versions:
            if version not in ready:
                self._set(name, version, VersionState.LOADING, backend=backend)

    def finish_load(self, name: str, models: Mapping[int, Model]) -> list[Model]:
        """All versions of a load turn READY in one step. Returns what they replace, to drain."""
        self._failures.pop(name, None)
        ready = self._ready.setdefault(name, {})
        replaced = [ready[version] for version in models if version in ready]
        for model in replaced:
            self._holders.note_leaving(name, model)
        ready.update(models)
        self._choose_default(name)
        for version, model in sorted(models.items()):
            note = gpu_use.started(model.hosts)
            self._set(name, version, VersionState.READY, model=model, note=note)
        return replaced

    def note_change(self, name: str, version: int) -> None:
        """A version that serves has changed in what its row shows: its instances."""
        record = self._records.get(name, {}).get(version)
        if record is not None:
            self._on_change(self._entry(name, record))

    def note_phase(self, name: str, version: int, phase: str) -> None:
        """Where a load is, for the reader of the index; a version that still serves stays READY."""
        record = self._records.get(name, {}).get(version)
        if record is not None and record.state is VersionState.LOADING:
            self._set(name, version, VersionState.LOADING, phase)

    def fail_load(self, name: str, reasons: Mapping[int, str]) -> None:
        """What served before goes on; a version without predecessor is UNAVAILABLE."""
        ready = self._ready.get(name, {})
        for version, reason in sorted(reasons.items()):
            if version not in ready:
                self._set(name, version, VersionState.UNAVAILABLE, reason)

    def fail_model(self, name: str, reason: str) -> None:
        """The load failed before its versions were known."""
        if self._ready.get(name):
            return
        self._failures[name] = reason
        self._on_change(self._failed_entry(name, reason))

    def begin_unload(self, name: str, version: int, reason: str = "") -> Model | None:
        """Take a version out of routing. Returns its model, to drain; None if nothing served.

        `reason`: why nobody but the server wanted it; empty for a plain unload.
        """
        self._failures.pop(name, None)
        model = self._ready.get(name, {}).pop(version, None)
        if model is None:
            record = self._records.get(name, {}).get(version)
            if record is not None and record.state is VersionState.UNAVAILABLE:
                self._set(name, version, VersionState.UNAVAILABLE, UNLOADED)
            return None
        self._holders.note_leaving(name, model)
        self._choose_default(name)
        self._set(name, version, VersionState.UNLOADING, reason, model=model)
        return model

    def finish_unload(self, name: str, version: int, model: Model) -> None:
        """`model` has drained; without effect when the version was loaded again meanwhile."""
        record = self._records.get(name, {}).get(version)
        if record is not None and record.model is model:
            left = model.left_running
            reason = left_running(left) if left else record.reason or UNLOADED
            note = gpu_use.ended(model.hosts)
            self._set(name, version, VersionState.UNAVAILABLE, reason, note=note)

    def clear_failure(self, name: str) -> None:
        """Nobody wants the model any more: an old failure is no longer a fault."""
        self._failures.pop(name, None)
        for version, record in list(self._records.get(name, {}).items()):
            if record.state is VersionState.UNAVAILABLE and not is_unloaded(record.reason):
                self._set(name, version, VersionState.UNAVAILABLE, UNLOADED)

    def forget(self, name: str) -> None:
        """Drop what is known of a model of which nothing serves, loads or drains."""
        records = self._records.get(name, {})
        if all(record.state is VersionState.UNAVAILABLE for record in records.values()):
            self._records.pop(name, None)
            self._failures.pop(name, None)
            self._ready.pop(name, None)

    def _set(
        self,
        name: str,
        version: int,
        state: VersionState,
        reason: str = "",
        *,
        model: Model | None = None,
        note: str = "",
        backend: str = "",
    ) -> None:
        records = self._records.setdefault(name, {})
        before = records.get(version)
        known = _backend_of(model) if model is not None else backend
        known = known or (before.backend if before is not None else "")
        record = VersionRecord(version, state, reason, model, note, known)
        records[version] = record
        if before is None or before != record:
            self._on_change(self._entry(name, record))

    def _choose_default(self, name: str) -> None:
        ready = self._ready.get(name)
        if ready:
            self._default[name] = ready[max(ready)]
        else:
            self._ready.pop(name, None)
            self._default.pop(name, None)

    def _failed_entry(self, name: str, reason: str) -> IndexEntry:
        return IndexEntry(name, None, "UNAVAILABLE", reason, namespace=self.namespace)

    def _entry(self, name: str, record: VersionRecord) -> IndexEntry:
        model = record.model
        return IndexEntry(
            name,
            record.version,
            record.state.value,
            record.reason,
            record.backend,
            model.instance_count if model is not None else 0,
            self.namespace,
            record.note,
        )


def _backend_of(model: Model) -> str:
    return model.spec.backend or model.spec.platform


def _is_coming(record: VersionRecord) -> bool:
    return record.state is VersionState.LOADING
