"""Client shared memory with the unmodified clients and their helpers: HTTP-014..016, HTTP-041,
HTTP-100..104, GRPC-013, GRPC-024, TOOL-006; and of CUDA, over a driver that has files in place of
a GPU: HTTP-017, GRPC-014."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

from serving.client_memory import ClientMemory, SystemRegion
from serving.errors import NotFoundError
from tests import fake_cuda
from tests.serving.frontends.process import ServerProcess

KINDS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(params=KINDS)
def api(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@pytest.fixture
def client(api: Any, open_server: ServerProcess) -> Iterator[Any]:
    address = open_server.http if api is tritonclient.http else open_server.grpc
    with api.InferenceServerClient(address) as client:
        yield client
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory()


@pytest.fixture
def key() -> Iterator[str]:
    name = f"/conch_test_{secrets.token_hex(8)}"
    yield name
    Path("/dev/shm", name[1:]).unlink(missing_ok=True)


@pytest.fixture
def region(key: str) -> Iterator[Any]:
    """4 KiB that the client's helper made."""
    handle = shm.create_shared_memory_region("r", key, 4096)
    yield handle
    if Path("/dev/shm", key[1:]).exists():
        shm.destroy_shared_memory_region(handle)


def names(client: Any) -> set[str]:
    status = client.get_system_shared_memory_status()
    rows = status if isinstance(status, list) else status.regions.values()
    return {row["name"] if isinstance(row, dict) else row.name for row in rows}


@contextlib.contextmanager
def refused(words: str) -> Iterator[None]:
    """As the client's mistake."""
    with pytest.raises(InferenceServerException, match=words) as caught:
        yield
    assert caught.value.status() not in ("500", "StatusCode.INTERNAL")


def in_region(
    api: Any, shape: list[int], size: int, datatype: str = "FP32", offset: int = 0
) -> Any:
    tensor = api.InferInput("INPUT0", shape, datatype)
    tensor.set_shared_memory("r", size, offset)
    return tensor


def to_region(api: Any, size: int, offset: int = 0) -> Any:
    output = api.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("r", size, offset)
    return output


def test_tensors_go_in_and_out_through_a_region(
    api: Any, client: Any, key: str, region: Any
) -> None:
    sent = np.arange(16, dtype=np.float32).reshape(1, 16)
    shm.set_shared_memory_region(region, [sent])
    client.register_system_shared_memory("r", key, 4096)

    answer = client.infer(
        "identity", [in_region(api, [1, 16], 64)], outputs=[to_region(api, 64, offset=1024)]
    )

    got = shm.get_contents_as_numpy(region, np.float32, [1, 16], offset=1024)
    np.testing.assert_array_equal(got, sent)
    output = answer.get_output("OUTPUT0")
    assert list(output["shape"] if isinstance(output, dict) else output.shape) == [1, 16]


def test_strings_go_through_a_region_too(api: Any, client: Any, key: str, region: Any) -> None:
    sent = serialize_byte_tensor(np.array([b"one", b"", "drei é".encode()], dtype=np.object_))
    shm.set_shared_memory_region(region, [sent])
    size = len(sent.item())
    client.register_system_shared_memory("r", key, 4096)

    client.infer(
        "strings",
        [in_region(api, [3], size, "BYTES")],
        outputs=[to_region(api, 512, offset=512)],
    )

    got = shm.get_contents_as_numpy(region, np.object_, [3], offset=512)
    assert list(got) == [b"one", b"", "drei é".encode()]


def test_status_tells_what_is_registered_and_unregistering_the_unknown_is_no_mistake(
    client: Any, key: str, region: Any
) -> None:
    client.register_system_shared_memory("r", key, 100, offset=8)
    client.register_system_shared_memory("s", key, 4096)
    assert names(client) == {"r", "s"}

    client.unregister_system_shared_memory("r")
    client.unregister_system_shared_memory("r")
    assert names(client) == {"s"}
    with refused("Unable to find system shared memory region: 'r'"):
        client.get_system_shared_memory_status("r")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"byte_size": 8192}, "Invalid args.*4096 bytes"),
        ({"byte_size": 4096, "offset": 1}, "Invalid args"),
        ({"byte_size": 0}, "Invalid args"),
        ({"byte_size": 8, "offset": 2**63 - 1}, "Invalid args"),
        ({"key": "/no_such_object", "byte_size": 8}, "Unable to open shared memory region: 'r'"),
        ({"key": "///", "byte_size": 8}, "refused"),
        ({"key": "//triton_python_backend_shm_region_1", "byte_size": 8}, "reserved"),
        ({"key": "/../etc/passwd", "byte_size": 8}, "without '/'"),
        ({"key": "/..", "byte_size": 8}, "without '/'"),
    ],
)
def test_a_region_that_cannot_be_is_refused(
    client: Any, key: str, region: Any, wrong: dict[str, Any], words: str
) -> None:
    with refused(words):
        client.register_system_shared_memory("r", **({"key": key} | wrong))

    assert names(client) == set()


def test_a_name_is_registered_once(client: Any, key: str, region: Any) -> None:
    client.register_system_shared_memory("r", key, 4096)

    with refused("already in manager"):
        client.register_system_shared_memory("r", key, 64)


@pytest.mark.parametrize(
    ("size", "offset", "words"),
    [
        (64, 4095, "Invalid offset"),
        (60, 0, "needs 64 bytes, got 60"),
        (2**62, 0, "Invalid offset"),
    ],
)
def test_an_input_outside_of_its_region_is_refused(
    api: Any, client: Any, key: str, region: Any, size: int, offset: int, words: str
) -> None:
    client.register_system_shared_memory("r", key, 4096)

    with refused(words):
        client.infer("identity", [in_region(api, [1, 16], size, offset=offset)])


def test_an_output_that_does_not_fit_is_an_error_and_nothing_is_written(
    api: Any, client: Any, key: str, region: Any
) -> None:
    client.register_system_shared_memory("r", key, 4096)
    tensor = api.InferInput("INPUT0", [1, 16], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 16), np.float32))

    with refused("at least 64 bytes"):
        client.infer("identity", [tensor], outputs=[to_region(api, 63)])

    assert not shm.get_contents_as_numpy(region, np.uint8, [4096]).any()


def test_an_object_that_its_client_shrinks_harms_that_client_only(
    api: Any, client: Any, key: str, region: Any
) -> None:
    client.register_system_shared_memory("r", key, 4096)
    os.truncate(Path("/dev/shm", key[1:]), 16)

    with refused("has become smaller"):
        client.infer("identity", [in_region(api, [1, 16], 64)])
    assert client.is_server_live()
    assert Path("/dev/shm", key[1:]).stat().st_size == 16


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def test_a_region_unregistered_during_a_request_is_dropped_after_it(key: str, region: Any) -> None:
    def descriptors() -> int:
        """Of this object alone: others of the process come and go."""
        return sum(_target(item) == f"/dev/shm{key}" for item in Path("/proc/self/fd").iterdir())

    before = descriptors()
    memory = ClientMemory(is_allowed=True)
    memory.register("r", key, 0, 4096)
    wanted = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
    part = memory.part(wanted, "output 'OUTPUT0'")

    memory.unregister(SystemRegion, "r")
    with pytest.raises(NotFoundError):
        memory.part(wanted, "output 'OUTPUT0'")
    part.write(b"done", "OUTPUT0")

    assert Path("/dev/shm", key[1:]).read_bytes()[:4] == b"done"
    assert descriptors() == before + 1
    del part
    assert descriptors() == before


@pytest.fixture
def device_memory() -> Iterator[Path]:
    """What a client has on its GPU: 128 bytes, of which the first 64 are a tensor."""
    content = np.arange(16, dtype=np.float32).tobytes() + bytes(64)
    with fake_cuda.allocation(content) as file:
        yield file


def cuda_handle(file: Path) -> bytes:
    """As the helper of the clients gives it, for both of them."""
    return base64.b64encode(fake_cuda.handle_of(file))


def cuda_regions(client: Any) -> dict[str, tuple[int, int]]:
    status = client.get_cuda_shared_memory_status()
    if isinstance(status, list):
        return {row["name"]: (row["device_id"], row["byte_size"]) for row in status}
    return {row.name: (row.device_id, row.byte_size) for row in status.regions.values()}


def test_tensors_go_in_and_out_through_a_region_of_a_gpu(
    api: Any, client: Any, device_memory: Path
) -> None:
    client.register_cuda_shared_memory("r", cuda_handle(device_memory), 0, 128)

    client.infer("identity", [in_region(api, [1, 16], 64)], outputs=[to_region(api, 64, offset=64)])

    sent, got = np.frombuffer(device_memory.read_bytes(), np.float32).reshape(2, 16)
    np.testing.assert_array_equal(got, sent)
    with refused("Invalid offset"):
        client.infer("identity", [in_region(api, [1, 16], 64, offset=65)])


def test_cuda_regions_are_told_and_unregistered(client: Any, device_memory: Path) -> None:
    for name in "ab":
        client.register_cuda_shared_memory(name, cuda_handle(device_memory), 0, 128)
    assert cuda_regions(client) == {"a": (0, 128), "b": (0, 128)}
    with refused("already in manager"):
        client.register_cuda_shared_memory("a", cuda_handle(device_memory), 0, 128)
    with refused("system shared memory region: 'a', which is cuda shared memory"):
        client.get_system_shared_memory_status("a")

    client.unregister_cuda_shared_memory("a")
    client.unregister_cuda_shared_memory("a")
    assert cuda_regions(client) == {"b": (0, 128)}
    client.unregister_cuda_shared_memory()
    assert cuda_regions(client) == {}
    with refused("Unable to find cuda shared memory region: 'b'"):
        client.get_cuda_shared_memory_status("b")


@pytest.mark.parametrize(
    ("handle", "device", "size", "words"),
    [
        (b"x" * 63, 0, 8, "has 63 bytes"),
        (fake_cuda.handle_of("/no/such"), 0, 8, "invalid resource handle"),
        (b"x" * 64, 1, 8, "on device 1"),
        (b"x" * 64, 0, 0, "Invalid args"),
    ],
)
def test_a_cuda_region_that_cannot_be_is_refused(
    client: Any, handle: bytes, device: int, size: int, words: str
) -> None:
    with refused(words):
        client.register_cuda_shared_memory("r", base64.b64encode(handle), device, size)

    assert cuda_regions(client) == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{}", "'raw_handle'"),
        ('{"raw_handle": "QUJD", "device_id": 0, "byte_size": 8}', "'raw_handle'"),
        ('{"raw_handle": {"b64": "QUJ"}, "device_id": 0, "byte_size": 8}', "not valid base64"),
        ('{"raw_handle": {"b64": "QUJD"}, "byte_size": 8}', "'device_id'"),
        ('{"raw_handle": {"b64": "QUJD"}, "device_id": 0}', "'byte_size'"),
        ('{"raw_handle": {"b64": "QUJD"}, "device_id": "0", "byte_size": 8}', "'device_id'"),
    ],
)
def test_members_of_a_cuda_registration_are_checked(
    open_server: ServerProcess, body: str, words: str
) -> None:
    """HTTP-017: 400 here, also where Triton says 500."""
    connection = http.client.HTTPConnection(open_server.http, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", "/v2/cudasharedmemory/region/r/register", body)
        answer = connection.getresponse()
        assert (answer.status, words in answer.read().decode()) == (400, True)
