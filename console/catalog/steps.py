"""What the pages of ensembles and their parts show of each other: steps, drawing, states now."""

from __future__ import annotations

from dataclasses import dataclass

from console.catalog import selectors
from console.catalog.ensembles import Family
from console.catalog.saved import saved_config
from console.catalog.selectors import ModelHeader, ModelRow
from console.catalog.step_drawing import Drawing, Node, draw
from console.catalog.step_graph import Step, StepGraph, graph_of
from console.core.choices import UNKNOWN
from console.repository import selectors as repository
from serving.config.protobuf import pb


@dataclass(frozen=True, slots=True)
class StepRow:
    step: Step
    row: ModelRow | None
    """None: neither the repository nor a worker knows the model."""

    @property
    def state(self) -> str:
        return self.row.state if self.row is not None else UNKNOWN

    @property
    def state_word(self) -> str:
        return "" if self.row is not None else "No such model"

    @property
    def p50_us(self) -> float | None:
        return self.row.rates.p50_us if self.row is not None and self.row.rates else None

    @property
    def queued(self) -> int:
        return self.row.rates.queued if self.row is not None and self.row.rates else 0


@dataclass(frozen=True, slots=True)
class Steps:
    graph: StepGraph
    rows: list[StepRow]
    drawing: Drawing

    @property
    def boxes(self) -> list[tuple[Node, StepRow | None]]:
        by_number = {row.step.number: row for row in self.rows}
        return [
            (node, by_number[node.step.number] if node.step is not None else None)
            for node in self.drawing.nodes
        ]


def users_of(family: Family) -> list[ModelRow]:
    """The ensembles that call a model, as they fare now."""
    if not family.users:
        return []
    rows = selectors.rows_of(set(family.users))
    return [rows[name] for name in family.users if name in rows]


def steps_of(header: ModelHeader) -> Steps | None:
    """None where the config on disk is no ensemble's, or cannot be read."""
    config = saved_config(header.directory) if header.directory is not None else None
    if config is None or not config.ensemble_scheduling.step:
        return None
    directories = {item.name: item for item in repository.models_on_disk()}

    def part_config(name: str) -> pb.ModelConfig | None:
        directory = directories.get(name)
        return saved_config(directory) if directory is not None else None

    graph = graph_of(config, part_config)
    rows = selectors.rows_of({step.model for step in graph.steps})
    return Steps(
        graph=graph,
        rows=[StepRow(step, rows.get(step.model)) for step in graph.steps],
        drawing=draw(graph),
    )
