"""CUDA shared memory on a real GPU (HTTP-017, GRPC-014, TOOL-006): memory of another process.

What does not need a device is in tests/serving/test_cuda_memory.py.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from serving.client_memory import ClientMemory, CudaRegion
from serving.errors import InvalidArgumentError
from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess

pytestmark = pytest.mark.gpu

CONTENT = np.arange(256, dtype=np.float32).tobytes() + bytes(1024)
"""A tensor of 1 KiB, and room for another one."""


@dataclass
class CudaProcess:
    process: subprocess.Popen[str]
    handle: str

    def content(self) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("read\n")
        self.process.stdin.flush()
        return bytes.fromhex(self.process.stdout.readline())


@pytest.fixture
def other() -> Iterator[CudaProcess]:
    """Another process, with CONTENT on GPU 0."""
    command = [sys.executable, "-m", "tests.gpu.cuda_client", CONTENT.hex()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        handle = process.stdout.readline().strip()
        assert len(base64.b64decode(handle)) == 64
        yield CudaProcess(process, handle)


async def test_memory_of_another_process_is_read_and_written(other: CudaProcess) -> None:
    memory = ClientMemory(is_allowed=True)
    await memory.register_cuda("c", base64.b64decode(other.handle), 0, len(CONTENT))
    region = memory.regions(CudaRegion)[0]

    assert bytes(region.read(0, len(CONTENT))) == CONTENT
    region.write(1020, memoryview(b"12345678"))
    assert other.content()[1020:1028] == b"12345678"

    memory.unregister(CudaRegion)
    del region
    await memory.register_cuda("c", base64.b64decode(other.handle), 0, 8)  # closed, opened again
    memory.unregister(CudaRegion)


async def test_more_than_the_allocation_and_other_devices_are_refused(other: CudaProcess) -> None:
    memory = ClientMemory(is_allowed=True)
    handle = base64.b64decode(other.handle)

    with pytest.raises(InvalidArgumentError, match="its allocation has"):
        await memory.register_cuda("c", handle, 0, 2**40)
    with pytest.raises(InvalidArgumentError, match="does not see"):
        await memory.register_cuda("c", handle, 4096, 8)
    with pytest.raises(InvalidArgumentError, match="Unable to open CUDA"):
        await memory.register_cuda("c", bytes(64), 0, 8)
    await memory.register_cuda("c", handle, 0, len(CONTENT))  # none of it has harmed the driver
    memory.unregister(CudaRegion)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = write_repository(tmp_path_factory.mktemp("repository"))
    arguments = (f"--model-repository={repository}", "--allow-client-shm=true")
    with ServerProcess(arguments) as server:
        yield server


@pytest.mark.parametrize("api", [tritonclient.http, tritonclient.grpc])
def test_tensors_go_in_and_out_through_a_region(
    server: ServerProcess, other: CudaProcess, api: Any
) -> None:
    address = server.http if api is tritonclient.http else server.grpc
    tensor = api.InferInput("INPUT0", [1, 256], "FP32")
    tensor.set_shared_memory("c", 1024)
    output = api.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("c", 1024, 1024)
    with api.InferenceServerClient(address) as client:
        client.register_cuda_shared_memory("c", other.handle.encode(), 0, len(CONTENT))
        client.infer("identity", [tensor], outputs=[output])
        client.unregister_cuda_shared_memory("c")
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region"):
            client.infer("identity", [tensor])

    content = other.content()
    assert content[1024:] == content[:1024]


def test_the_clients_own_helper_makes_regions(server: ServerProcess) -> None:
    """tritonclient.utils.cuda_shared_memory, where its package cuda-python is installed."""
    pytest.importorskip("cuda")
    from tritonclient.utils import cuda_shared_memory as cuda

    sent = np.arange(16, dtype=np.float32)
    region = cuda.create_shared_memory_region("mine", 128, 0)
    try:
        cuda.set_shared_memory_region(region, [sent])
        handle = cuda.get_raw_handle(region)
        tensor = tritonclient.http.InferInput("INPUT0", [1, 16], "FP32")
        tensor.set_shared_memory("mine", 64)
        with tritonclient.http.InferenceServerClient(server.http) as client:
            client.register_cuda_shared_memory("mine", handle, 0, 128)
            got = client.infer("identity", [tensor]).as_numpy("OUTPUT0")
            client.unregister_cuda_shared_memory("mine")
    finally:
        cuda.destroy_shared_memory_region(region)
    np.testing.assert_array_equal(got, sent.reshape(1, 16))
