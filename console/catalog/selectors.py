"""Reads of the models pages: disk, workers and rates joined. Nothing here writes.

The repository is the truth about which models exist, the workers about what they serve; a model
that only a worker knows (its files are gone, or another repository) is listed too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db.models import Max

from console.catalog.filters import ModelFilters
from console.catalog.observed import Observed, Placement, observe
from console.core.choices import LOADING, NOT_SERVED, READY, UNLOADING, WARNING, ModelState
from console.core.workers import known
from console.deployments import selectors as deployments
from console.deployments.choices import WantedState
from console.deployments.models import Deployment, DesiredModel
from console.engines import selectors as engines
from console.engines.models import EngineBuild
from console.monitoring import selectors as monitoring
from console.monitoring.selectors import ModelRates
from console.repository import selectors as repository
from console.repository.models import Upload
from serving.errors import NotFoundError
from serving.repository.layout import ModelDirectory

MISSING = "should be served, and no worker serves it"
Rates = dict[tuple[str, str] | str, ModelRates]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of the models list."""

    name: str
    observed: Observed
    versions: list[int]
    has_config: bool
    is_on_disk: bool
    rates: ModelRates | None
    """Of all versions together; None when no worker sent any."""
    is_wanted: bool
    """Did somebody ask for it to be served?"""
    failure: str = ""
    """Why the newest operation on it failed, where it did and nothing serves it."""

    @property
    def is_missing(self) -> bool:
        """Wanted, and no worker even tries."""
        return self.is_wanted and self.observed.state == NOT_SERVED

    @property
    def state(self) -> str:
        return WARNING if self.is_missing else self.observed.state

    @property
    def reasons(self) -> list[str]:
        if not self.is_missing:
            return self.observed.reasons
        return [f"{MISSING}: {self.failure}" if self.failure else MISSING]

    @property
    def backend(self) -> str:
        return self.observed.backend

    @property
    def is_served(self) -> bool:
        return bool(self.observed.served_versions)

    @property
    def versions_note(self) -> str:
        """What stands behind the served versions: which failed, or of how many."""
        failed = self.observed.failed_versions
        if failed:
            return f"({', '.join(failed)} failed)"
        others = len(self.versions) - len(self.observed.served_versions)
        return f"(of {len(self.versions)})" if self.is_served and others > 0 else ""


@dataclass(frozen=True, slots=True)
class ModelList:
    rows: list[ModelRow]
    total: int
    ready: int
    backends: list[str]
    workers: list[str]
    workers_problem: str
    """Why the worker registry could not be read, or empty."""

    @property
    def is_changing(self) -> bool:
        return any(row.state in (LOADING, UNLOADING) for row in self.rows)


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """What every tab of one model shows above its tabs."""

    row: ModelRow
    directory: ModelDirectory | None
    workers_problem: str
    worker_ids: list[str]
    """Every connected worker: where a load can go."""
    desired: list[DesiredModel]
    open_deployment: Deployment | None
    """The newest operation on the model, while it runs."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def state(self) -> str:
        return self.row.state

    @property
    def queued(self) -> int:
        return self.row.rates.queued if self.row.rates else 0

    @property
    def pinned_versions(self) -> list[int]:
        """Exactly the versions that were asked for, whatever the policy says; often none."""
        return sorted({number for row in self.desired for number in row.versions or []})

    @property
    def reason_lines(self) -> list[str]:
        """Why it is not simply ready, in sentences; empty when all is well."""
        lines = list(self.row.observed.sentences)
        if self.row.is_missing and self.open_deployment is None:
            lines.append(f"{self._wish} No worker serves it.")
            if self.row.failure:
                lines.append(f"The last attempt failed: {self.row.failure}")
        served = self.row.observed.served_versions
        if lines and served:
            lines.append(f"Still served: {_versions(served)}.")
        if self.workers_problem:
            lines.append(self.workers_problem)
        if not self.row.is_on_disk:
            lines.append(
                "The repository has no files of this model any more; a worker still lists it."
            )
        return lines

    @property
    def _wish(self) -> str:
        """Who wants it served."""
        person = next((row.updated_by for row in self.desired if row.updated_by), None)
        return f"{person} asked for it to be served." if person else "It should be served."

    @property
    def can_unload(self) -> bool:
        return self.row.is_served or self.state == LOADING


def model_list(filters: ModelFilters) -> ModelList:
    workers, problem = known()
    observed = observe(workers)
    directories = {item.name: item for item in repository.models_on_disk()}
    rates = monitoring.latest_rates()
    wanted = deployments.wanted_models()
    rows = [
        _row(name, directories.get(name), observed.get(name), rates, name in wanted)
        for name in sorted(directories.keys() | observed.keys())
    ]
    failures = _failures([row.name for row in rows if row.is_missing])
    rows = [replace(row, failure=failures.get(row.name, "")) for row in rows]
    return ModelList(
        rows=[row for row in rows if _accepts(filters, row)],
        total=len(rows),
        ready=sum(row.state == READY for row in rows),
        backends=sorted({row.backend for row in rows if row.backend}),
        workers=sorted(worker.worker_id for worker in workers),
        workers_problem=problem,
    )


def _failures(names: list[str]) -> dict[str, str]:
    """Model -> why its newest deployment failed; models whose newest did not fail are left out."""
    if not names:
        return {}
    rows = Deployment.objects.filter(model__in=names).order_by()
    newest = rows.values("model").annotate(newest=Max("id")).values("newest")
    found = Deployment.objects.filter(pk__in=newest).exclude(error="")
    return {item.model: item.error for item in found if item.has_failed}


def model_rows(filters: ModelFilters) -> list[ModelRow]:
    return model_list(filters).rows


def rows_of(names: set[str]) -> dict[str, ModelRow]:
    """Some models by name; those that nobody knows are left out."""
    observed = observe(known()[0])
    directories = {item.name: item for item in repository.models_on_disk()}
    rates = monitoring.latest_rates()
    wanted = deployments.wanted_models()
    return {
        name: _row(name, directories.get(name), observed.get(name), rates, name in wanted)
        for name in names & (directories.keys() | observed.keys())
    }


def model_header(name: str) -> ModelHeader:
    """Raises NotFoundError when neither the repository nor a worker knows the model."""
    workers, problem = known()
    observed = observe(workers).get(name)
    directory = next((item for item in repository.models_on_disk() if item.name == name), None)
    if directory is None and observed is None:
        raise NotFoundError(
            f"There is no model '{name}': no such folder in the repository, no worker serves it."
        )
    desired = deployments.desired_for(name)
    is_wanted = any(row.state == WantedState.LOADED for row in desired)
    row = _row(name, directory, observed, monitoring.latest_rates(), is_wanted)
    if row.is_missing:
        row = replace(row, failure=_failures([name]).get(name, ""))
    return ModelHeader(
        row=row,
        directory=directory,
        workers_problem=problem,
        worker_ids=sorted(item.worker_id for item in workers if not item.is_gone),
        desired=desired,
        open_deployment=_open_deployment(name),
    )


def _open_deployment(name: str) -> Deployment | None:
    newest = next(iter(deployments.deployments_for(name, 1)), None)
    return newest if newest is not None and newest.is_open else None


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One line of the Versions tab."""

    number: int
    folder: str
    """Relative to the repository."""
    observed: Observed
    size_bytes: int | None
    """None when its files are gone."""
    changed_at: float | None
    upload: Upload | None
    build: EngineBuild | None
    """Which made it an engine; at most one of the two is told."""
    is_selected: bool
    """Does the version policy choose it?"""
    rates: ModelRates | None

    @property
    def state(self) -> str:
        return self.observed.state if self.observed.placements else NOT_SERVED

    @property
    def reasons(self) -> list[str]:
        return self.observed.reasons

    @property
    def is_served(self) -> bool:
        return bool(self.observed.served_versions)

    @property
    def placements(self) -> list[Placement]:
        return [item for item in self.observed.placements if item.is_serving]


def version_rows(header: ModelHeader, selected: list[int]) -> list[VersionRow]:
    """Newest first: versions on disk and those that a worker still holds."""
    on_disk = header.directory.versions if header.directory else []
    held = {int(item.version) for item in header.row.observed.placements if item.version.isdigit()}
    made = _uploads_of(header.name), engines.built_versions(header.name)
    rates = monitoring.latest_rates()
    return [
        _version_row(header, number, number in selected, _maker(number, *made), rates)
        for number in sorted(set(on_disk) | held, reverse=True)
    ]


def _version_row(
    header: ModelHeader,
    number: int,
    is_selected: bool,
    maker: Upload | EngineBuild | None,
    rates: Rates,
) -> VersionRow:
    size, changed_at = _measure(header.directory, number)
    return VersionRow(
        number=number,
        folder=f"{header.name}/{number}",
        observed=header.row.observed.of_version(str(number)),
        size_bytes=size,
        changed_at=changed_at,
        upload=maker if isinstance(maker, Upload) else None,
        build=maker if isinstance(maker, EngineBuild) else None,
        is_selected=is_selected,
        rates=rates.get((header.name, str(number))),
    )


def _measure(directory: ModelDirectory | None, number: int) -> tuple[int | None, float | None]:
    """Bytes of a version's files and when the newest of them changed."""
    if directory is None or number not in directory.versions:
        return None, None
    files = [item for item in (directory.path / str(number)).rglob("*") if item.is_file()]
    stats = [item.stat() for item in files]
    return sum(item.st_size for item in stats), max((item.st_mtime for item in stats), default=None)


def _maker(
    number: int, uploads: dict[int, Upload], builds: dict[int, EngineBuild]
) -> Upload | EngineBuild | None:
    """What wrote the version last: a number is free again once its version was deleted."""
    upload, build = uploads.get(number), builds.get(number)
    if upload is None or build is None:
        return upload or build
    published, finished = upload.published_at, build.finished_at
    return upload if published and finished and published > finished else build


def _uploads_of(model: str) -> dict[int, Upload]:
    """Version -> the newest upload that published it."""
    rows = Upload.objects.filter(model=model, published_at__isnull=False).select_related("actor")
    newest: dict[int, Upload] = {}
    for upload in rows.order_by("published_at"):
        for version in upload.versions:
            newest[int(version)] = upload
    return newest


def _row(
    name: str,
    directory: ModelDirectory | None,
    observed: Observed | None,
    rates: Rates,
    is_wanted: bool,
) -> ModelRow:
    return ModelRow(
        name=name,
        observed=observed or Observed(),
        versions=list(directory.versions) if directory else [],
        has_config=bool(directory and directory.config_path),
        is_on_disk=directory is not None,
        rates=rates.get(name),
        is_wanted=is_wanted,
    )


def _accepts(filters: ModelFilters, row: ModelRow) -> bool:
    return filters.accepts(
        name=row.name,
        state=row.state,
        backend=row.backend,
        worker_ids=row.observed.worker_ids,
    )


def state_choices() -> list[tuple[str, str]]:
    return list(ModelState.choices)


def _versions(numbers: list[str]) -> str:
    return f"version {numbers[0]}" if len(numbers) == 1 else f"versions {', '.join(numbers)}"
