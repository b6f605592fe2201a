"""Rules about sequence batching: controls, strategies, implicit state."""

from __future__ import annotations

from math import prod

from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.validate_model import escapes, file_size
from serving.config.validate_scheduling import check_preferred
from serving.datatypes import BY_CONFIG_NUMBER

_CONTROL = pb.ModelSequenceBatching.Control
_ID_TYPES = (
    pb.DataType.TYPE_UINT64,
    pb.DataType.TYPE_INT64,
    pb.DataType.TYPE_UINT32,
    pb.DataType.TYPE_INT32,
    pb.DataType.TYPE_STRING,
)
_LISTS = ("int32_false_true", "fp32_false_true", "bool_false_true")


def check_sequence(report: Report) -> None:
    if not report.config.HasField("sequence_batching"):
        return
    sequence = report.config.sequence_batching
    _check_controls(report, sequence)
    if sequence.HasField("oldest"):
        sizes = sequence.oldest.preferred_batch_size
        path = "sequence_batching.oldest.preferred_batch_size"
        check_preferred(report, "sequence batching", path, sizes)
    if sequence.HasField("direct"):
        share = sequence.direct.minimum_slot_utilization
        if not 0 <= share <= 1:
            report.error(
                "sequence_batching.direct.minimum_slot_utilization",
                f"minimum slot utilization must be in range [0, 1], got {share:g}",
                "0 never waits for other sequences, 1 waits for all slots",
                code="VAL-25",
                edit=report.mend.replace_value(
                    "sequence_batching.direct.minimum_slot_utilization", "1" if share > 1 else "0"
                ),
            )
    _check_states(report, sequence)


def _check_controls(report: Report, sequence: pb.ModelSequenceBatching) -> None:
    names: set[str] = set()
    kinds: dict[int, str] = {}
    for index, item in enumerate(sequence.control_input):
        path = f"sequence_batching.control_input[{index}]"
        if not item.name:
            report.error(
                path,
                "sequence batching control tensor must have a name",
                "add name: to the control_input",
                code="VAL-16",
            )
        elif item.name in names:
            report.error(
                f"{path}.name",
                f"sequence batching control tensor '{item.name}' is specified for multiple "
                f"control kinds",
                "name each control tensor once",
                code="VAL-17",
            )
        names.add(item.name)
        _check_sent_too(report, f"{path}.name", "control", item.name)
        for position, control in enumerate(item.control):
            place = f"{path}.control[{position}]"
            kind = _kind_name(control)
            if control.kind in kinds:
                report.error(
                    f"{place}.kind",
                    f"sequence batching specifies multiple {kind} tensors: "
                    f"'{kinds[control.kind]}' and '{item.name}'",
                    "keep one",
                    code="VAL-18",
                )
            kinds.setdefault(control.kind, item.name)
            _check_control(report, place, kind, item.name, control)


def _kind_name(control: pb.ModelSequenceBatching.Control) -> str:
    known = _CONTROL.Kind.DESCRIPTOR.values_by_number.get(control.kind)
    return known.name if known is not None else str(control.kind)


def _check_control(
    report: Report, path: str, kind: str, name: str, control: pb.ModelSequenceBatching.Control
) -> None:
    given = [field for field in _LISTS if len(getattr(control, field))]
    if control.kind == _CONTROL.CONTROL_SEQUENCE_CORRID:
        if given:
            report.error(
                f"{path}.{given[0]}",
                f"sequence batching must not specify '{given[0]}' for {kind} of '{name}'",
                "give data_type instead",
                code="VAL-22",
                edit=report.mend.remove(f"{path}.{given[0]}"),
            )
        if control.data_type not in _ID_TYPES:
            report.error(
                f"{path}.data_type",
                f"unexpected data type for {kind} of '{name}'; allowed data types are "
                f"TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
                "write data_type: TYPE_UINT64",
                code="VAL-23",
                edit=report.mend.replace_value(f"{path}.data_type", "TYPE_UINT64")
                or report.mend.insert_inside(path, "data_type: TYPE_UINT64"),
            )
        return
    if not given:
        report.error(
            path,
            f"sequence batching must specify either {', '.join(_LISTS)} for {kind} of '{name}'",
            "e.g. int32_false_true: [0, 1]",
            code="VAL-19",
        )
    elif len(given) > 1:
        report.error(
            path,
            f"sequence batching specifies more than one of {' and '.join(given)} for {kind} of "
            f"'{name}'",
            "keep one",
            code="VAL-20",
        )
    for field in given:
        count = len(getattr(control, field))
        if count != 2:
            report.error(
                f"{path}.{field}",
                f"'{field}' of {kind} must have exactly 2 entries, got {count}",
                "the value for false, then the one for true",
                code="VAL-21",
            )


def _check_states(report: Report, sequence: pb.ModelSequenceBatching) -> None:
    taken: set[str] = set()
    outputs: set[str] = set()
    for index, state in enumerate(sequence.state):
        path = f"sequence_batching.state[{index}]"
        if state.input_name in taken:
            report.error(
                f"{path}.input_name",
                f"state input '{state.input_name}' is specified more than once",
                "each state has an input of its own: remove or rename one",
                code="VAL-61",
            )
        taken.add(state.input_name)
        _check_state(report, path, state)
        if state.output_name in outputs:
            report.warning(
                f"{path}.output_name",
                f"state output '{state.output_name}' is specified more than once: only the last "
                "state with it changes",
                "each state has an output of its own: remove or rename one",
                code="SCH-062",
            )
        outputs.add(state.output_name)
        if len(state.initial_state) > 1:
            report.error(
                f"{path}.initial_state[1]",
                f"state '{state.input_name}' has {len(state.initial_state)} initial_state entries; "
                f"one is allowed",
                "keep one initial_state",
                code="VAL-60",
            )
        for position, initial in enumerate(state.initial_state[:1]):
            _check_initial(report, f"{path}.initial_state[{position}]", state, initial)


def _check_state(report: Report, path: str, state: pb.ModelSequenceBatching.State) -> None:
    label = state.input_name or state.output_name or path
    if state.data_type == pb.TYPE_INVALID:
        report.error(
            path,
            f"state '{label}' must specify 'data_type'",
            "e.g. data_type: TYPE_FP32",
            code="SCH-062",
        )
    for field, hint in (
        ("input_name", "name the model's input that gets the state"),
        ("output_name", "name the model's output that gives the next state"),
        ("dims", "e.g. dims: [1], without the batch axis"),
    ):
        if not getattr(state, field):
            effect = "" if field == "dims" else ", so it has no effect"
            report.warning(path, f"state '{label}' has no '{field}'{effect}", hint, code="SCH-062")
    controls = {item.name for item in report.config.sequence_batching.control_input}
    if state.input_name in controls:
        report.warning(
            f"{path}.input_name",
            f"state input '{state.input_name}' is a control input as well: the state takes its "
            "place",
            "rename one of them",
            code="SCH-062",
        )
    _check_sent_too(report, f"{path}.input_name", "state", state.input_name)
    if state.use_growable_memory and not state.use_same_buffer_for_input_output:
        report.warning(
            f"{path}.use_growable_memory",
            f"state '{state.input_name}': use_growable_memory needs "
            "use_same_buffer_for_input_output",
            "write use_same_buffer_for_input_output: true",
            code="SCH-065",
        )


def _check_sent_too(report: Report, path: str, kind: str, name: str) -> None:
    if name not in {item.name for item in report.config.input}:
        return
    report.warning(
        path,
        f"{kind} input '{name}' is a model input as well: callers must send it, and the {kind} "
        "takes its place",
        "leave it out of `input`",
        code="SCH-060" if kind == "control" else "SCH-062",
    )


def _check_initial(
    report: Report,
    path: str,
    state: pb.ModelSequenceBatching.State,
    initial: pb.ModelSequenceBatching.InitialState,
) -> None:
    label = f"initial_state of '{state.input_name}'"
    dims, wanted = list(initial.dims), list(state.dims)
    if len(dims) != len(wanted):
        report.error(
            f"{path}.dims",
            f"{label} has {len(dims)} dimensions, the state dimensions are {wanted}",
            f"write dims: {wanted}, with a number for each -1",
            code="VAL-60",
        )
    elif any(want not in (-1, got) for want, got in zip(wanted, dims, strict=True)):
        report.error(
            f"{path}.dims",
            f"{label}: dims {dims} do not match the state dimensions {wanted}",
            f"write dims: {wanted}",
            code="VAL-60",
            edit=report.mend.replace_value(f"{path}.dims", str(wanted))
            if -1 not in wanted
            else None,
        )
    elif any(dim < 1 for dim in dims):
        report.error(
            f"{path}.dims",
            f"{label}: dims {dims} must be fixed: the state dimensions -1 need a value here",
            "write a number for each -1",
            code="VAL-60",
        )
    if initial.data_type != state.data_type:
        wanted_type = pb.DataType.Name(state.data_type)
        report.error(
            path,
            f"{label} must have the data_type of the state, {wanted_type}, got "
            f"{pb.DataType.Name(initial.data_type)}",
            f"write data_type: {wanted_type}",
            code="VAL-60",
            edit=report.mend.replace_value(f"{path}.data_type", wanted_type)
            or report.mend.insert_inside(path, f"data_type: {wanted_type}"),
        )
    choice = initial.WhichOneof("state_data")
    if choice is None:
        report.error(
            path,
            f"{label} must specify zero_data or data_file",
            "zero_data: true",
            code="VAL-60",
            edit=report.mend.insert_inside(path, "zero_data: true"),
        )
    elif choice == "data_file":
        _check_state_file(report, path, label, initial)


def _check_state_file(
    report: Report, path: str, label: str, initial: pb.ModelSequenceBatching.InitialState
) -> None:
    datatype = BY_CONFIG_NUMBER.get(initial.data_type)
    if report.model_directory is None or datatype is None:
        return
    name = initial.data_file
    size = None
    if not escapes(name):
        size = file_size(report.model_directory / "initial_state", name)
    needed = datatype.size * prod(initial.dims)
    if size is None:
        report.error(
            f"{path}.data_file",
            f"{label}: no file 'initial_state/{name}'",
            "put the file into the directory 'initial_state' of the model",
            code="VAL-60",
        )
    elif size < needed:
        report.error(
            f"{path}.data_file",
            f"{label}: 'initial_state/{name}' has {size} bytes, {needed} are needed",
            "write the whole tensor into the file, or use zero_data: true",
            code="VAL-60",
        )
