"""Places for the boxes and lines of a step graph: layers from top to bottom, as SVG coordinates.

A line that passes a layer goes through a lane of its own there, so that it never runs below a box;
its name stands in the lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from console.catalog.step_graph import Step, StepGraph

WIDTH, HEIGHT = 176, 50
END_HEIGHT, END_WIDTH = 30, 72
"""Of the boxes of inputs and outputs, whose width also depends on their names."""
LANE = 10
"""From the left side of a lane to its line."""
LETTER = 7.0
"""Width of one of a tensor's name."""
GAP_X, GAP_Y = 28, 62
MARGIN = 6
LABEL_STEP = 15
LABEL_LEVELS = 3


@dataclass(slots=True, eq=False)
class Node:
    layer: int
    name: str = ""
    """Of an input or output; of the tensor in a lane."""
    step: Step | None = None
    is_lane: bool = False
    x: float = 0.0
    y: float = 0.0
    after: list[Node] = field(default_factory=list)
    before: list[Node] = field(default_factory=list)

    @property
    def width(self) -> int:
        text = round(LETTER * len(self.name))
        if self.is_lane:
            return 2 * LANE + text
        return WIDTH if self.step is not None else max(END_WIDTH, text + 28)

    @property
    def height(self) -> int:
        return HEIGHT if self.step is not None else END_HEIGHT

    @property
    def middle(self) -> float:
        """Where the one line of a lane goes, and where those of a box spread from."""
        return self.x + (LANE if self.is_lane else self.width / 2)


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    """The `d` of an SVG path."""
    title: str


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    height: int
    nodes: list[Node]
    lines: list[Line]
    labels: list[Label]


@dataclass(slots=True, eq=False)
class _Edge:
    way: list[Node]
    """From the giver over passed layers to the taker."""
    tensor: str
    title: str


def draw(graph: StepGraph) -> Drawing:
    last = max(graph.depths.values(), default=0) + 1
    steps = {step.number: Node(graph.depths[step.number], step=step) for step in graph.steps}
    inputs = {name: Node(0, name) for name in graph.inputs}
    outputs = {name: Node(last, name) for name in graph.outputs}
    layers: list[list[Node]] = [[] for _ in range(last + 1)]
    for node in (*inputs.values(), *steps.values(), *outputs.values()):
        layers[node.layer].append(node)
    edges = list(_edges(graph, inputs, steps, outputs))
    for edge in edges:
        _lead_through(edge, layers)
    named = _named(edges)
    for edge in named:
        if edge.way[1].is_lane:
            edge.way[1].name = edge.tensor
    _order(layers)
    width, height = _place(layers)
    boxes = [node for layer in layers for node in layer if not node.is_lane]
    return Drawing(width, height, boxes, [_line(edge) for edge in edges], _labels(named))


def _edges(
    graph: StepGraph, inputs: dict[str, Node], steps: dict[int, Node], outputs: dict[str, Node]
) -> Iterable[_Edge]:
    """Upward lines, which only a circle has, are left out: the list of steps still tells them."""
    givers = dict(inputs)
    titles = {}
    for step in graph.steps:
        for given in step.gives:
            givers[given.name] = steps[step.number]
            titles[given.name] = given.signature
    takers = [(steps[step.number], item.name) for step in graph.steps for item in step.takes]
    takers += [(node, name) for name, node in outputs.items()]
    seen = set()
    for taker, tensor in takers:
        giver = givers.get(tensor)
        key = (id(giver), id(taker), tensor)
        if giver is None or giver.layer >= taker.layer or key in seen:
            continue
        seen.add(key)
        yield _Edge([giver, taker], tensor, f"{tensor} {titles.get(tensor, '')}".strip())


def _lead_through(edge: _Edge, layers: list[list[Node]]) -> None:
    giver, taker = edge.way
    lanes = [Node(layer, is_lane=True) for layer in range(giver.layer + 1, taker.layer)]
    for node in lanes:
        layers[node.layer].append(node)
    edge.way = [giver, *lanes, taker]
    for upper, lower in zip(edge.way, edge.way[1:], strict=False):
        upper.after.append(lower)
        lower.before.append(upper)


def _order(layers: list[list[Node]]) -> None:
    """Each box below the middle of those that lead to it."""
    for layer, above in zip(layers[1:], layers, strict=False):
        places = {id(node): index for index, node in enumerate(above)}

        def middle(node: Node, places: dict[int, int] = places) -> float:
            known = [places[id(item)] for item in node.before if id(item) in places]
            return sum(known) / len(known) if known else 0.0

        layer.sort(key=middle)


def _place(layers: list[list[Node]]) -> tuple[int, int]:
    """Sets every place; returns the width and height of the whole."""
    widths = [sum(n.width for n in layer) + GAP_X * (len(layer) - 1) for layer in layers]
    whole = max(widths, default=0)
    y = float(MARGIN)
    for layer, width in zip(layers, widths, strict=True):
        x = MARGIN + (whole - width) / 2
        tallest = max((node.height for node in layer), default=0)
        for node in layer:
            node.x, node.y = x, y + (tallest - node.height) / 2
            x += node.width + GAP_X
        y += tallest + GAP_Y
    return round(whole + 2 * MARGIN), round(y - GAP_Y + MARGIN)


def _port(node: Node, others: list[Node], other: Node) -> float:
    """Where on the edge of a box a line begins or ends: spread in the order of the other ends."""
    if node.is_lane:
        return node.middle
    ends = sorted({id(item): item.middle for item in others}.items(), key=lambda item: item[1])
    index = [key for key, _ in ends].index(id(other))
    return node.x + node.width * (index + 1) / (len(ends) + 1)


def _line(edge: _Edge) -> Line:
    parts: list[str] = []
    for upper, lower in zip(edge.way, edge.way[1:], strict=False):
        x1, y1 = _port(upper, upper.after, lower), upper.y + upper.height
        x2, y2 = _port(lower, lower.before, upper), lower.y
        bend = (y1 + y2) / 2
        start = f"L{x1:.1f} {y1:.1f}" if parts else f"M{x1:.1f} {y1:.1f}"
        parts.append(f"{start}C{x1:.1f} {bend:.1f} {x2:.1f} {bend:.1f} {x2:.1f} {y2:.1f}")
    return Line("".join(parts), edge.title)


def _named(edges: list[_Edge]) -> list[_Edge]:
    """The first line of each tensor, where no box at its ends has the tensor's name."""
    found: dict[str, _Edge] = {}
    for edge in edges:
        if edge.tensor not in (edge.way[0].name, edge.way[-1].name):
            found.setdefault(edge.tensor, edge)
    return list(found.values())


def _labels(named: list[_Edge]) -> list[Label]:
    """Beside the line in its lane, or where it leaves its box: one below the other there."""
    labels = []
    levels: dict[int, int] = {}
    for edge in named:
        giver, second = edge.way[:2]
        if second.is_lane:
            labels.append(Label(second.middle + 7, second.y + second.height / 2 + 4, edge.tensor))
            continue
        level = levels.get(id(giver), 0)
        levels[id(giver)] = level + 1
        y = giver.y + giver.height + LABEL_STEP * (1 + level % LABEL_LEVELS)
        labels.append(Label(_port(giver, giver.after, second) + 7, y, edge.tensor))
    return labels
