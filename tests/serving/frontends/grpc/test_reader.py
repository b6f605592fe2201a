"""Messages out of pieces of any size, in memory that models can use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from serving.frontends.grpc_reader import MessageReader, MessageTooLargeError
from serving.protocol.v2_grpc_split import split_request
from tests.serving.frontends.grpc.services import framed


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.booleans(),
)
def test_pieces_of_any_size_give_the_messages(
    texts: list[bytes], sizes: list[int], is_eager: bool
) -> None:
    wire = memoryview(b"".join(framed(text, is_compressed=len(text) % 2 == 1) for text in texts))
    reader, at, number = MessageReader(), 0, 0
    found = []
    while at < len(wire):
        size = sizes[number % len(sizes)]
        reader.feed(wire[at : at + size])
        if is_eager:
            found += reader.take()
        at, number = at + size, number + 1
    found += reader.take()

    assert [(bytes(data), flag) for flag, data in found] == [
        (text, len(text) % 2 == 1) for text in texts
    ]
    assert not reader.is_within_message


def test_a_large_message_is_received_in_place() -> None:
    text = bytes(range(256)) * 1000
    wire = memoryview(framed(text))
    reader = MessageReader()
    reader.feed(wire[:100])
    assert reader.is_within_message
    at = 100
    while (space := reader.free_space()) is not None:
        piece = wire[at : at + min(len(space), 50_000)]
        space[: len(piece)] = piece
        reader.received(len(piece))
        at += len(piece)
    ((flag, data),) = reader.take()
    assert (flag, bytes(data)) == (False, text)


@pytest.mark.parametrize("name", ["m", "model", "a_longer_name_of_a_model"])
def test_the_tensor_of_a_large_message_is_aligned(name: str) -> None:
    tensor = np.arange(50_000, dtype=np.float32)
    message = service_pb2.ModelInferRequest(model_name=name, id="7")
    message.inputs.add(name="INPUT0", datatype="FP32", shape=tensor.shape)
    message.raw_input_contents.append(tensor.tobytes())
    wire = memoryview(framed(message.SerializeToString()))
    reader = MessageReader()
    reader.feed(wire[:1000])
    reader.feed(wire[1000:])
    ((_, data),) = reader.take()

    split = split_request(data)

    array = np.frombuffer(split.raw[0], dtype=np.uint8)
    assert array.ctypes.data % 64 == 0
    assert np.shares_memory(array, np.frombuffer(data, dtype=np.uint8))
    np.testing.assert_array_equal(array.view(np.float32), tensor)


def test_more_than_a_message_may_have_is_refused() -> None:
    with pytest.raises(MessageTooLargeError, match="larger than max"):
        MessageReader().feed(memoryview(b"\0\xff\xff\xff\xff"))


def test_no_more_messages_are_taken_apart_than_somebody_takes() -> None:
    """A window full of empty messages would be a million objects."""
    reader = MessageReader()
    for _ in range(10):
        reader.feed(memoryview(framed(b"") * 1000))
    assert len(reader._whole) == 256
    assert len(reader._rest) == 5 * (10_000 - 256)
    count = 0
    while taken := reader.take():
        assert len(taken) <= 256
        count += len(taken)
    assert count == 10_000
    assert not reader.is_within_message
