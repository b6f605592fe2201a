"""Inputs, outputs and scheduler of an effective config, as the Summary tab lists them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from serving.config.protobuf import pb


@dataclass(frozen=True, slots=True)
class Tensor:
    kind: str
    name: str
    datatype: str
    shape: str
    note: str


def tensors(config: pb.ModelConfig) -> list[Tensor]:
    return [
        *(_tensor("input", item, _input_notes(item)) for item in config.input),
        *(_tensor("output", item, _output_notes(item)) for item in config.output),
    ]


def _tensor(kind: str, item: pb.ModelInput | pb.ModelOutput, notes: Iterable[str]) -> Tensor:
    return Tensor(
        kind=kind,
        name=item.name,
        datatype=datatype_word(item.data_type),
        shape=shape_text(item.dims),
        note=", ".join(notes),
    )


def _input_notes(item: pb.ModelInput) -> list[str]:
    notes = ["optional"] if item.optional else []
    return [*notes, "ragged batches"] if item.allow_ragged_batch else notes


def _output_notes(item: pb.ModelOutput) -> list[str]:
    return [f"labels in {item.label_filename}"] if item.label_filename else []


def datatype_word(number: int) -> str:
    """The name on the wire: TYPE_STRING is BYTES there."""
    # A config under repair may hold a number that has no name.
    known = pb.DataType.DESCRIPTOR.values_by_number.get(number)
    name = str(known.name if known is not None else number).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def shape_text(dims: Iterable[int]) -> str:
    return f"[{', '.join(str(dim) for dim in dims)}]"


def scheduler_words(config: pb.ModelConfig) -> str:
    choice = config.WhichOneof("scheduling_choice")
    if choice == "dynamic_batching":
        delay = config.dynamic_batching.max_queue_delay_microseconds
        return f"dynamic batching, waits up to {delay} µs" if delay else "dynamic batching"
    words = {"sequence_batching": "sequences", "ensemble_scheduling": "ensemble"}
    return words.get(choice or "", "one request after another")
