"""Frames and shared segments: what arrives is what was sent, and nonsense is refused."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.datatypes import BY_DTYPE, BY_NAME
from serving.instance import wire
from serving.instance.channel import BlockingChannel
from serving.instance.shared_tensors import (
    INLINE_LIMIT_BYTES,
    MAX_IDLE_SEGMENTS,
    MIN_SEGMENT_BYTES,
    PeerSegments,
    SegmentPool,
    TensorPacker,
    TensorUnpacker,
)
from tests.serving.instance.python_models import (
    IDENTITY,
    ask_one,
    context_for,
    hosted,
    output,
)
from tests.waiting import wait_until

Pair = tuple[BlockingChannel, BlockingChannel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = map(BlockingChannel, socket.socketpair())
    yield left, right
    left.close()
    right.close()


@pytest.fixture
def pool() -> Iterator[SegmentPool]:
    made = SegmentPool()
    yield made
    made.close()


def send_raw(data: bytes) -> BlockingChannel:
    left, right = socket.socketpair()
    left.sendall(data)
    left.close()
    return BlockingChannel(right)


def log_frame(text: str) -> bytes:
    return wire.pack(wire.Kind.LOG, wire.Log(20, text))


def test_frames_arrive_one_by_one_however_the_bytes_are_cut(pair: Pair):
    data = b"".join(log_frame("x" * length) for length in (0, 5, 50))
    left, right = pair

    for index in range(len(data)):
        left._socket.sendall(data[index : index + 1])
    frames = [right.receive() for _ in range(3)]

    assert [len(item.header) for item in frames if item] == sorted(
        len(item.header) for item in frames if item
    )


def test_a_frame_larger_than_the_buffer_arrives_whole(pair: Pair):
    left, right = pair
    text = "y" * 900_000

    sender = threading.Thread(target=left.send, args=(log_frame(text),))
    sender.start()
    frame = right.receive()
    sender.join()

    assert frame is not None
    assert text.encode() in bytes(frame.payload)


def test_the_end_of_the_socket_is_none():
    channel = send_raw(b"")
    assert channel.receive() is None
    channel.close()


@pytest.mark.parametrize(
    "prefix",
    [
        wire.PREFIX.pack(wire.MAX_PAYLOAD_BYTES + 1, 1, 0, 32),
        wire.PREFIX.pack(10, 11, 0, 32),
        wire.PREFIX.pack(10, 5, wire.MAX_DESCRIPTORS + 1, 32),
        wire.PREFIX.pack(0, 0, 1, 32),
    ],
    ids=["too long", "header beyond payload", "too many descriptors", "descriptor missing"],
)
def test_an_impossible_frame_is_refused(prefix: bytes):
    channel = send_raw(prefix)
    with pytest.raises(wire.WireError):
        channel.receive()
    channel.close()


def frame_of(packer: TensorPacker) -> wire.Frame:
    data = wire.pack(wire.Kind.LOG, wire.Log(0, ""), packer.blobs)
    _, header_length, _, kind = wire.PREFIX.unpack_from(data)
    payload = bytearray(data[wire.PREFIX.size :])
    start = wire.aligned(header_length)
    return wire.Frame(kind, memoryview(payload)[:header_length], payload, start, [])


def test_small_and_big_tensors_share_a_frame(pool: SegmentPool):
    arrays = [np.arange(size, dtype=np.int32) for size in (3, 50_000, 0, 7, 60_000)]
    packer, peer = TensorPacker(pool), PeerSegments(writable=False)

    headers = [packer.add("T", BY_DTYPE[item.dtype], item) for item in arrays]
    peer.add([os.dup(item) for item in packer.finish()])
    unpacker = TensorUnpacker(frame_of(packer), peer)
    got = [unpacker.unpack(header)[1] for header in headers]

    for sent, received in zip(arrays, got, strict=True):
        np.testing.assert_array_equal(received, sent)
    assert pool.busy_count == 1


def test_a_segment_is_released_when_its_last_view_is_gone(pool: SegmentPool):
    packer, peer = TensorPacker(pool), PeerSegments(writable=False)
    header = packer.add("T", BY_NAME["UINT8"], np.ones(100_000, np.uint8))
    peer.add([os.dup(item) for item in packer.finish()])
    unpacker = TensorUnpacker(frame_of(packer), peer)
    array = unpacker.unpack(header)[1]
    view = array[5:10]
    del unpacker

    del array
    gc.collect()
    assert peer.take_released() == []

    del view
    gc.collect()
    assert peer.take_released() == [0]


def test_idle_segments_are_bounded_and_the_other_side_is_told(pool: SegmentPool):
    segments = [pool.acquire(MIN_SEGMENT_BYTES)[0] for _ in range(MAX_IDLE_SEGMENTS + 3)]

    pool.release([item.number for item in segments])

    assert pool.forgotten == [0, 1, 2]
    assert pool.acquire(1)[1] is False


def test_a_segment_that_could_shrink_is_refused():
    descriptor = os.memfd_create("rogue", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, 4096)

    with pytest.raises(wire.WireError, match="not sealed"):
        PeerSegments(writable=False).add([descriptor])


@pytest.mark.parametrize(
    "header",
    [
        wire.TensorHeader("T", "FP32", (2,), wire.INLINE, 0, 4),
        wire.TensorHeader("T", "FP32", (2,), wire.INLINE, 1 << 40, 8),
        wire.TensorHeader("T", "FP32", (2,), wire.INLINE, -16, 8),
        wire.TensorHeader("T", "FP32", (2,), 9, 0, 8),
        wire.TensorHeader("T", "FP99", (2,), wire.INLINE, 0, 8),
        wire.TensorHeader("T", "BYTES", (2,), wire.INLINE, 0, 8),
    ],
    ids=["size", "beyond", "before", "segment", "type", "strings"],
)
def test_a_tensor_that_does_not_fit_its_data_is_refused(header: wire.TensorHeader):
    payload = bytearray(b"\xff" * 16)
    frame = wire.Frame(34, memoryview(payload)[:0], payload, 0, [])

    with pytest.raises(wire.WireError):
        TensorUnpacker(frame, PeerSegments(writable=False)).unpack(header)


def test_only_tensors_over_the_limit_use_a_segment(pool: SegmentPool):
    packer = TensorPacker(pool)
    packer.add("T", BY_NAME["UINT8"], np.ones(INLINE_LIMIT_BYTES, np.uint8))

    assert packer.finish() == []
    assert pool.busy_count == 0


ROGUE = """
import os, stat
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        if requests[0].request_id():
            for name in os.listdir("/proc/self/fd"):
                try:
                    if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                        os.write(int(name), b"\\xff" * 64)
                except OSError:
                    pass
        return [pb_utils.InferenceResponse(r.inputs()) for r in requests]
"""


async def test_a_process_that_talks_nonsense_is_ended_and_comes_back(tmp_path: Path):
    async with hosted(context_for(tmp_path, ROGUE)) as host:
        refused = await ask_one(host, id="rogue")

        assert refused.error is not None
        assert "broke the protocol" in refused.error.message
        await wait_until(lambda: host.is_ready)
        served = await ask_one(host, np.ones(1, np.float32))
        assert output(served, "IN").tolist() == [1]


async def test_no_answer_names_a_segment_or_a_descriptor(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        output(await ask_one(host, np.zeros(100_000, np.float32)))
        maps = Path(f"/proc/{host.pid}/maps").read_text()

    assert "memfd:tensors" in maps
    assert "/dev/shm" not in maps
