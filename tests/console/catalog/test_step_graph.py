"""The steps of an ensemble as a graph, and where its drawing puts them."""

from __future__ import annotations

from itertools import combinations

from google.protobuf import text_format

from console.catalog.step_drawing import Drawing, Node, draw
from console.catalog.step_graph import StepGraph, graph_of
from serving.config.protobuf import pb
from tests.console.catalog.ensemble_files import PART, PIPELINE


def config_of(text: str) -> pb.ModelConfig:
    return text_format.Parse(text, pb.ModelConfig())


def graph(*steps: tuple[str, str, str], inputs: str = "IN", outputs: str = "OUT") -> StepGraph:
    """Steps (model, tensors that it takes, tensors that it gives), names parted by spaces."""
    config = pb.ModelConfig()
    for name in inputs.split():
        config.input.add(name=name)
    for name in outputs.split():
        config.output.add(name=name)
    for model, takes, gives in steps:
        step = config.ensemble_scheduling.step.add(model_name=model, model_version=-1)
        for name in takes.split():
            step.input_map[name.lower()] = name
        for name in gives.split():
            step.output_map[name.lower()] = name
    return graph_of(config, lambda name: None)


DIAMOND = (("a", "IN", "p q r"), ("b", "p", "s"), ("c", "q", "t"), ("d", "r s t", "OUT"))


def test_steps_say_what_they_take_and_give_and_of_which_type() -> None:
    parts = {"first": config_of(PART)}

    found = graph_of(config_of(PIPELINE), parts.get)

    first, second = found.steps
    assert (first.number, first.model, first.version) == (1, "first", "")
    assert [(item.name, item.model_name) for item in first.takes] == [("IN", "x")]
    assert [(item.name, item.signature) for item in first.gives] == [("half_done", "FP32 [-1, 2]")]
    assert second.version == "2"
    assert second.gives[0].signature == ""


def test_a_step_comes_one_layer_below_the_deepest_that_it_needs() -> None:
    assert graph(*DIAMOND).depths == {1: 1, 2: 2, 3: 2, 4: 3}
    # The order of the config does not count.
    assert graph(*reversed(DIAMOND)).depths == {1: 3, 2: 2, 3: 2, 4: 1}


def test_a_config_under_repair_still_gives_a_graph() -> None:
    circle = graph(("a", "p", "q"), ("b", "q", "p OUT"), ("c", "nowhere", "x"))

    assert set(circle.depths) == {1, 2, 3}
    assert len(draw(circle).nodes) == 5
    assert draw(graph(inputs="", outputs="")).nodes == []


def boxes_overlap(first: Node, second: Node) -> bool:
    return (
        first.x < second.x + second.width
        and second.x < first.x + first.width
        and first.y < second.y + second.height
        and second.y < first.y + first.height
    )


def test_no_box_lies_on_another_or_outside() -> None:
    wide = [(f"m{index}", "IN", f"t{index}") for index in range(7)]
    last = ("join", " ".join(gives for _, _, gives in wide), "OUT")
    for found in (draw(graph(*DIAMOND)), draw(graph(*wide, last))):
        for node in found.nodes:
            assert node.x >= 0
            assert node.x + node.width <= found.width
            assert node.y + node.height <= found.height
        assert not [pair for pair in combinations(found.nodes, 2) if boxes_overlap(*pair)]


def test_every_inner_tensor_is_named_once_and_outer_ones_by_their_boxes() -> None:
    found = draw(graph(*DIAMOND))

    assert sorted(label.text for label in found.labels) == ["p", "q", "r", "s", "t"]
    assert [node.name for node in found.nodes if node.name] == ["IN", "OUT"]
    assert len(found.lines) == 7


def test_a_line_that_passes_a_layer_has_a_lane_of_its_own() -> None:
    found: Drawing = draw(graph(*DIAMOND))
    second_layer = [node for node in found.nodes if node.layer == 2]
    [passing] = [label for label in found.labels if label.text == "r"]

    for node in second_layer:
        assert not node.x <= passing.x <= node.x + node.width
