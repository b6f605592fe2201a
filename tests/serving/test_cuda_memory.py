"""CUDA regions (HTTP-017, HTTP-102, HTTP-103, GRPC-014): handles, sizes, devices, who closes what.

The driver's library is real C over files here; tests/gpu/test_cuda_memory.py has a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import cuda_library
from serving.client_memory import ClientMemory, CudaRegion, SystemRegion
from serving.cuda_memory import decode_handle
from serving.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from tests import fake_cuda
from tests.fake_cuda import handle_of
from tests.waiting import wait_until, wait_until_blocking


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def library(built: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cuda_library, "LIBRARY", str(built))
    library = ctypes.CDLL(str(built))
    yield library
    library.fake_devices(1)
    # The thread that opened a region may hold it for a moment more.
    wait_until_blocking(lambda: library.fake_open() == 0, 10)
    assert library.fake_depth() == 0


@pytest.fixture
def memory(library: Any) -> Iterator[ClientMemory]:
    memory = ClientMemory(is_allowed=True)
    yield memory
    memory.unregister(CudaRegion)


@pytest.fixture
def buffer() -> Iterator[Path]:
    """The client's device memory: 64 bytes."""
    with fake_cuda.allocation(bytes(range(64))) as file:
        yield file


def part(memory: ClientMemory, size: int, offset: int = 0, region: str = "c") -> Any:
    wanted = {
        "shared_memory_region": region,
        "shared_memory_byte_size": size,
        "shared_memory_offset": offset,
    }
    return memory.part(wanted, "input 'IN'")


async def test_a_region_is_read_and_written_where_the_handle_says(memory, library, buffer):
    await memory.register_cuda("c", handle_of(buffer), 0, 64)

    assert part(memory, 8, offset=16).read() == bytes(range(16, 24))
    part(memory, 4, offset=60).write(memoryview(b"done"), "OUT")

    assert buffer.read_bytes()[60:] == b"done"
    assert [(r.name, r.device_id, r.byte_size) for r in memory.regions(CudaRegion)] == [
        ("c", 0, 64)
    ]
    assert memory.regions(SystemRegion) == []


async def test_parts_stay_inside_the_region_and_outputs_inside_their_part(memory, library, buffer):
    await memory.register_cuda("c", handle_of(buffer), 0, 32)

    with pytest.raises(InvalidArgumentError, match="Invalid offset"):
        part(memory, 1, offset=32)
    with pytest.raises(InvalidArgumentError, match="at least 5 bytes"):
        part(memory, 4).write(b"12345", "OUT")
    assert part(memory, 0).read() == b""


async def test_a_region_that_is_unregistered_in_use_is_closed_after_its_last_request(
    memory, library, buffer
):
    """HTTP-103."""
    await memory.register_cuda("c", handle_of(buffer), 0, 64)
    used = part(memory, 4)

    memory.unregister(CudaRegion, "c")

    with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'c'"):
        part(memory, 4)
    assert used.read() == bytes(range(4))
    assert library.fake_open() == 1
    del used
    await wait_until(lambda: library.fake_open() == 0)


async def test_names_are_one_space_and_each_kind_unregisters_its_own(memory, library, buffer):
    """HTTP-014, HTTP-102: a CUDA region is not found as a system one, and the other way round."""
    await memory.register_cuda("c", handle_of(buffer), 0, 64)
    await memory.register_cuda("d", handle_of(buffer), 0, 64)

    with pytest.raises(AlreadyExistsError, match="already in manager"):
        await memory.register_cuda("c", handle_of(buffer), 0, 64)
    with pytest.raises(AlreadyExistsError, match="already in manager"):
        memory.register("c", "/x", 0, 4)
    with pytest.raises(NotFoundError, match="system .* 'c', which is cuda shared memory"):
        memory.regions(SystemRegion, "c")

    memory.unregister(SystemRegion)
    memory.unregister(SystemRegion, "c")
    memory.unregister(CudaRegion, "nobody")
    assert [region.name for region in memory.regions(CudaRegion)] == ["c", "d"]
    memory.unregister(CudaRegion)
    assert memory.regions(CudaRegion) == []


async def test_a_device_gets_one_context_for_all_its_regions(memory, library, buffer):
    before = library.fake_retained()
    for name in "abc":
        await memory.register_cuda(name, handle_of(buffer), 0, 64)

    assert library.fake_retained() == before + 1
    assert library.fake_open() == 3
    memory.unregister(CudaRegion)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"handle": b"short"}, "has 5 bytes; one of cudaIpcGetMemHandle has 64"),
        ({"handle": handle_of("/no/such")}, "cuIpcOpenMemHandle_v2: invalid resource handle"),
        ({"device": -1}, "numbered from 0"),
        ({"device": 1}, "on device 1, which this server does not see; it sees 0 to 0"),
        ({"byte_size": 0}, "Invalid args"),
        ({"byte_size": 2**63}, "Invalid args"),
        ({"byte_size": 65}, "asks for 65 bytes, its allocation has 64"),
        ({"name": ""}, "must have a name"),
    ],
)
async def test_a_region_that_cannot_be_is_refused(memory, library, buffer, changes, words):
    wanted = {"name": "c", "handle": handle_of(buffer), "device": 0, "byte_size": 64} | changes

    with pytest.raises(InvalidArgumentError, match=words):
        await memory.register_cuda(**wanted)
    assert memory.regions(CudaRegion) == []


async def test_a_full_device_may_have_room_later(memory, library):
    with pytest.raises(UnavailableError, match="the device's memory is full"):
        await memory.register_cuda("c", handle_of("full"), 0, 64)


async def test_memory_that_its_client_has_freed_harms_that_client_only(memory, library, buffer):
    await memory.register_cuda("c", handle_of(buffer), 0, 64)
    there = part(memory, 4)
    region = memory.regions(CudaRegion)[0]
    memory.unregister(CudaRegion)
    driver, address = region._memory._driver, region._memory._address
    region._memory._address = 0  # as if the allocation had gone

    with pytest.raises(InvalidArgumentError, match="cannot be used any more.*register it anew"):
        there.read()
    with pytest.raises(InvalidArgumentError, match="cannot be used any more"):
        there.write(b"1234", "OUT")
    assert driver.size_at(0, address) == 64


async def test_without_a_driver_or_a_device_it_says_what_is_missing(
    memory, library, monkeypatch, buffer
):
    library.fake_devices(0)
    with pytest.raises(InvalidArgumentError, match="GPUs not supported: .* finds no device"):
        await memory.register_cuda("c", handle_of(buffer), 0, 64)

    monkeypatch.setattr(cuda_library, "LIBRARY", "libnone.so.1")
    with pytest.raises(InvalidArgumentError, match="libnone.so.1: .*nvidia-smi"):
        await memory.register_cuda("c", handle_of(buffer), 0, 64)

    library.fake_devices(1)
    monkeypatch.setattr(cuda_library, "LIBRARY", library._name)
    await memory.register_cuda("c", handle_of(buffer), 0, 64)  # looked for anew each time
    memory.unregister(CudaRegion)


async def test_cuda_regions_need_the_option_as_well(buffer):
    """HTTP-100."""
    closed = ClientMemory()
    with pytest.raises(UnsupportedError, match="cuda shared memory.*--allow-client-shm=true"):
        await closed.register_cuda("c", handle_of(buffer), 0, 64)
    with pytest.raises(UnsupportedError, match="--allow-client-shm=true"):
        closed.unregister(CudaRegion)
    assert closed.regions(CudaRegion) == []


def test_handles_come_as_base64_with_or_without_line_breaks():
    """HTTP-017: C++ clients break the line after 72 characters."""
    assert decode_handle("c", "QUJD") == b"ABC"
    assert decode_handle("c", "QU\nJD\n") == b"ABC"
    for wrong in ("QUJ", "Q*JD"):
        with pytest.raises(InvalidArgumentError, match="not valid base64"):
            decode_handle("c", wrong)
    for wrong in (None, 7, {}):
        with pytest.raises(InvalidArgumentError, match="'raw_handle'"):
            decode_handle("c", wrong)
