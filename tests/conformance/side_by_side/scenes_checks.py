"""What is refused before any scheduler sees it."""

from __future__ import annotations

from typing import Any

from tests.conformance.side_by_side.drive import Drive
from tests.conformance.side_by_side.scenario import scenario

_ONE = ("INT32", [[1, 2]])
_TWO = ("INT32", [[3]])


def text(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


async def ask(drive: Drive, tag: str, **options: Any) -> None:
    await drive.answers(drive.send(tag, **options))


async def with_inputs(drive: Drive, tag: str, *names: str, **more: Any) -> None:
    known = {"INPUT0": _ONE, "INPUT1": _TWO, "INPUT2": _TWO}
    inputs = {name: known.get(name, _TWO) for name in names} | more
    await ask(drive, tag, inputs=inputs)


@scenario("echo_two", words=("expected number of inputs between 2 and 3 but got", "INPUT1"))
async def the_number_of_inputs_with_an_optional_one(drive: Drive) -> None:
    await with_inputs(drive, "all", "INPUT0", "INPUT1", "INPUT2")
    await with_inputs(drive, "required", "INPUT0", "INPUT1")
    await with_inputs(drive, "too few", "INPUT0")
    await with_inputs(drive, "too many", "INPUT0", "INPUT1", "INPUT2", "INPUT3")


@scenario("echo_required", words=("expected 2 inputs but got 1", "expected 2 inputs but got 3"))
async def the_number_of_inputs_without_optional_ones(drive: Drive) -> None:
    await with_inputs(drive, "too few", "INPUT0")
    await with_inputs(drive, "too many", "INPUT0", "INPUT1", "INPUT2")


@scenario("echo_required", words=("unexpected inference input", "'NOPE'"))
async def an_unknown_input(drive: Drive) -> None:
    await with_inputs(drive, "unknown", "INPUT0", "NOPE")


@scenario("echo_required", words=("unexpected inference output", "'NOPE'"))
async def an_unknown_output(drive: Drive) -> None:
    inputs = {"INPUT0": _ONE, "INPUT1": _TWO}
    await ask(drive, "unknown", inputs=inputs, outputs=("NOPE",))
    await ask(drive, "one of two", inputs=inputs, outputs=("OUTPUT1",))


@scenario("echo_required", words=("already exists",))
async def an_output_that_is_asked_for_twice(drive: Drive) -> None:
    inputs = {"INPUT0": _ONE, "INPUT1": _TWO}
    await ask(drive, "twice", inputs=inputs, outputs=("OUTPUT0", "OUTPUT0"))


@scenario("echo_required", words=("batch size does not match",))
async def inputs_of_different_batch_sizes(drive: Drive) -> None:
    await with_inputs(drive, "one and two", "INPUT0", INPUT1=("INT32", [[3], [4]]))


@scenario("echo_required", words=("batch-size must be <= 4",))
async def a_batch_beyond_the_limit(drive: Drive) -> None:
    five = {"INPUT0": ("INT32", [[1, 2]] * 5), "INPUT1": ("INT32", [[3]] * 5)}
    await ask(drive, "five", inputs=five)


@scenario("echo_required", words=("INT32", "FP32", "data-type"))
async def an_input_of_another_type(drive: Drive) -> None:
    await with_inputs(drive, "float", "INPUT0", INPUT1=("FP32", [[3.0]]))


@scenario("echo_required", words=("[-1,2]", "[1,3]", "[1,1,2]", "unexpected shape"))
async def an_input_of_another_shape(drive: Drive) -> None:
    await with_inputs(drive, "longer", "INPUT1", INPUT0=("INT32", [[1, 2, 3]]))
    await with_inputs(drive, "deeper", "INPUT1", INPUT0=("INT32", [[[1, 2]]]))


@scenario("echo_required", words=("has no shape",))
async def an_input_without_a_shape(drive: Drive) -> None:
    await with_inputs(drive, "none", "INPUT0", INPUT1=("INT32", [], bytes(4)))


@scenario("echo_required", words=("12", "8"))
async def an_input_of_another_size(drive: Drive) -> None:
    await with_inputs(drive, "longer", "INPUT1", INPUT0=("INT32", [1, 2], bytes(12)))
    await with_inputs(drive, "none", "INPUT1", INPUT0=("INT32", [1, 2], b""))


@scenario(
    "echo_text",
    words=("incomplete", "unexpected number of string elements", "expected 3 string elements"),
)
async def texts_that_are_not_as_many_as_the_shape_says(drive: Drive) -> None:
    bodies = {
        "right": text(b"a", b"", b"bc"),
        "too few": text(b"a", b"b"),
        "too many": text(b"a", b"b", b"c", b"d"),
        "cut in a length": text(b"a", b"b") + b"\x01\x00",
        "cut in a text": text(b"a", b"b") + b"\x09\x00\x00\x00ab",
    }
    for tag, body in bodies.items():
        await ask(drive, tag, inputs={"INPUT0": ("BYTES", [1, 3], body)})


@scenario("echo_required", words=("triton_",))
async def reserved_names_of_parameters(drive: Drive) -> None:
    inputs = {"INPUT0": _ONE, "INPUT1": _TWO}
    await ask(drive, "reserved", inputs=inputs, triton_secret=1)
    await ask(drive, "own", inputs=inputs, my_own="x", a_number=1, a_flag=True)
