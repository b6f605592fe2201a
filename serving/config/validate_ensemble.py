"""Rules about an ensemble by itself: its sections, steps and tensor graph.

What needs the composing models (VAL-70..79) is checked where they are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from serving.config.backend_files import ENSEMBLE
from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.schema import map_path

_STEPS = "ensemble_scheduling.step"


@dataclass(slots=True)
class _Graph:
    """Ensemble tensors: who writes and who reads them. -1 stands for the request itself."""

    writers: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Tensor -> step that writes it and field path."""
    readers: dict[str, tuple[int, str]] = field(default_factory=dict)


def check_ensemble(report: Report) -> None:
    config = report.config
    if config.platform != ENSEMBLE:
        if config.HasField("ensemble_scheduling"):
            report.error(
                "ensemble_scheduling",
                f"ensemble scheduling is set for a model whose platform is not ensemble "
                f"(it is '{config.platform}')",
                'set platform: "ensemble" and remove backend',
                code="VAL-26",
            )
        return
    if not config.HasField("ensemble_scheduling"):
        report.error(
            "platform",
            "ensemble_scheduling must be set for a model with platform ensemble",
            "add ensemble_scheduling { step [ ... ] }",
            code="VAL-27",
        )
        return
    _check_foreign_sections(report)
    if not config.ensemble_scheduling.step:
        report.error(
            "ensemble_scheduling",
            "ensemble must specify 'step'",
            "add step [ { model_name: ... input_map { ... } output_map { ... } } ]",
            code="VAL-31",
        )
        return
    for index, step in enumerate(config.ensemble_scheduling.step):
        _check_step(report, index, step)
    _check_graph(report, _graph(report))


def _check_foreign_sections(report: Report) -> None:
    config = report.config
    present = [
        ("instance_group", "instance group", bool(config.instance_group), "VAL-28"),
        ("optimization", "optimization", config.HasField("optimization"), "VAL-29"),
        ("model_warmup", "model_warmup", bool(config.model_warmup), "VAL-30"),
    ]
    for name, words, is_there, code in present:
        if is_there:
            report.error(
                name,
                f"{words} must not be specified for an ensemble",
                "put it into the configs of the composing models",
                code=code,
                edit=report.mend.remove(name),
            )


def _check_step(report: Report, index: int, step: pb.ModelEnsembling.Step) -> None:
    path = f"{_STEPS}[{index}]"
    for name in ("model_name", "input_map", "output_map"):
        if not getattr(step, name):
            report.error(
                path,
                f"must specify '{name}' in step {index} of ensemble",
                f"add {name} to the step",
                code="VAL-32",
            )
    for name in ("input_map", "output_map"):
        for key, tensor in getattr(step, name).items():
            if not tensor:
                report.error(
                    map_path(f"{path}.{name}", key),
                    f"'{name}' of step {index} maps '{key}' to no ensemble tensor",
                    "give the value a tensor name",
                    code="VAL-32",
                )


def _graph(report: Report) -> _Graph:
    graph = _Graph()
    for index, item in enumerate(report.config.input):
        graph.writers[item.name] = (-1, f"input[{index}]")
    for index, step in enumerate(report.config.ensemble_scheduling.step):
        for key, tensor in step.input_map.items():
            place = map_path(f"{_STEPS}[{index}].input_map", key)
            graph.readers.setdefault(tensor, (index, place))
        for key, tensor in step.output_map.items():
            place = map_path(f"{_STEPS}[{index}].output_map", key)
            first = graph.writers.setdefault(tensor, (index, place))
            if first != (index, place):
                before = "the request" if first[0] < 0 else f"step {first[0]}"
                report.error(
                    place,
                    f"ensemble tensor '{tensor}' can be written only once: {before} and step "
                    f"{index} both write it",
                    "give one of them another name",
                    code="VAL-33",
                )
    return graph


def _check_graph(report: Report, graph: _Graph) -> None:
    inputs = {item.name for item in report.config.input}
    outputs = {item.name for item in report.config.output}
    for index, item in enumerate(report.config.input):
        if item.name not in graph.readers:
            report.error(
                f"input[{index}]",
                f"ensemble input '{item.name}' is not used by any step",
                "map it in an input_map, or remove the input",
                code="VAL-35",
            )
    for index, output in enumerate(report.config.output):
        if output.name not in graph.writers:
            report.error(
                f"output[{index}]",
                f"ensemble output '{output.name}' is not written by any step",
                "map a step's output to it in an output_map, or remove the output",
                code="VAL-36",
            )
    for tensor, (step, place) in graph.writers.items():
        if tensor not in graph.readers and tensor not in outputs and tensor not in inputs:
            report.error(
                place,
                f"ensemble tensor '{tensor}' is unused: step {step} writes it, nothing reads it",
                "remove the entry, or read the tensor in a later step",
                code="VAL-37",
            )
    unwritten = False
    for tensor, (step, place) in graph.readers.items():
        if tensor not in graph.writers:
            unwritten = True
            report.error(
                place,
                f"ensemble tensor '{tensor}' is unused: step {step} reads it, nothing writes it",
                f"tensors written: {', '.join(sorted(graph.writers)) or 'none'}",
                code="VAL-37",
            )
    if not unwritten:
        _check_progress(report)


def _check_progress(report: Report) -> None:
    """Steps that wait for each other never start, and what needs them never comes."""
    there = {item.name for item in report.config.input}
    waiting = dict(enumerate(report.config.ensemble_scheduling.step))
    while ready := [
        index for index, step in waiting.items() if there.issuperset(step.input_map.values())
    ]:
        for index in ready:
            there.update(waiting.pop(index).output_map.values())
    missing = [
        (index, item.name)
        for index, item in enumerate(report.config.output)
        if any(item.name in step.output_map.values() for step in waiting.values())
    ]
    steps = ", ".join(str(index) for index in waiting)
    for index, name in missing:
        writer = next(step for step in waiting.values() if name in step.output_map.values())
        tensor = next(item for item in writer.input_map.values() if item not in there)
        report.error(
            f"output[{index}]",
            f"ensemble output '{name}' is not written: at least one of its depending tensors, "
            f"'{tensor}', is not connected to the request",
            f"steps that wait for each other and never start: {steps}",
            code="VAL-36",
        )
    for index in waiting if not missing else ():
        report.warning(
            f"{_STEPS}[{index}]",
            f"step {index} never runs: it waits for a tensor that comes of itself",
            "remove the step, or let its inputs come from the request or an earlier step",
            code="VAL-36",
        )
