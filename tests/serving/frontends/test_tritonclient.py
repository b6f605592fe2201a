"""The unmodified client library against a real server: HTTP and gRPC, blocking and asyncio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.utils import InferenceServerException

from tests.serving.frontends.process import ServerProcess
from tests.waiting import wait_until_blocking

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def http(served: ServerProcess) -> Iterator[Any]:
    with closing(httpclient.InferenceServerClient(served.http, concurrency=4)) as client:
        yield client


@pytest.fixture
def grpc(served: ServerProcess) -> Iterator[Any]:
    with closing(grpcclient.InferenceServerClient(served.grpc)) as client:
        yield client


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def module_of(client: Any) -> Any:
    return httpclient if "http" in type(client).__module__ else grpcclient


def tensor(
    module: Any, array: Any, name: str = "INPUT0", datatype: str = "FP32", **how: Any
) -> Any:
    item = module.InferInput(name, list(array.shape), datatype)
    item.set_data_from_numpy(array, **how)
    return item


def test_server_is_live_ready_and_says_who_it_is(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    name = metadata["name"] if isinstance(metadata, dict) else metadata.name
    assert name == "triton"


def test_model_readiness(client: Any) -> None:
    assert client.is_model_ready("identity")
    assert client.is_model_ready("identity", "1")


def test_metadata_and_config_of_an_onnx_model_without_config_file(http: Any, grpc: Any) -> None:
    metadata = http.get_model_metadata("plus_one")
    message = grpc.get_model_metadata("plus_one", as_json=True)

    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert message["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}]
    assert http.get_model_config("plus_one")["backend"] == "onnxruntime"
    assert grpc.get_model_config("plus_one").config.backend == "onnxruntime"


def test_infer_on_onnx(client: Any) -> None:
    result = client.infer("plus_one", [tensor(module_of(client), X, "x")], request_id="r7")

    np.testing.assert_array_equal(result.as_numpy("y"), X + 1)
    answer = result.get_response()
    assert (answer["id"] if isinstance(answer, dict) else answer.id) == "r7"


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_http_infer_in_every_mix_of_json_and_binary(
    http: Any, binary_in: bool, binary_out: bool
) -> None:
    inputs = [tensor(httpclient, X, binary_data=binary_in)]
    outputs = [httpclient.InferRequestedOutput("OUTPUT0", binary_data=binary_out)]

    result = http.infer("identity", inputs, outputs=outputs)

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_http_compression_both_ways(http: Any, coding: str) -> None:
    result = http.infer(
        "identity",
        [tensor(httpclient, X)],
        request_compression_algorithm=coding,
        response_compression_algorithm=coding,
    )

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X)


def test_strings_and_half_floats(client: Any) -> None:
    module = module_of(client)
    words = np.array([b"a", "\u00e9".encode(), b""], dtype=np.object_)
    half = np.array([0.5, 2], dtype=np.float16)

    text = client.infer("strings", [tensor(module, words, datatype="BYTES")])
    numbers = client.infer("half", [tensor(module, half, datatype="FP16")])

    assert text.as_numpy("OUTPUT0").tolist() == words.tolist()
    assert numbers.as_numpy("OUTPUT0").tolist() == [0.5, 2]


def test_large_tensors_come_back_unchanged(client: Any) -> None:
    image = np.random.default_rng(1).random((2, 3, 224, 224), dtype=np.float32)

    for _ in range(3):
        result = client.infer("image", [tensor(module_of(client), image)])
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), image)


def test_classification_with_labels(client: Any) -> None:
    module = module_of(client)
    scores = np.array([0.25, 0.5, 0.125], dtype=np.float32)

    result = client.infer(
        "labelled",
        [tensor(module, scores)],
        outputs=[module.InferRequestedOutput("OUTPUT0", class_count=2)],
    )

    assert result.as_numpy("OUTPUT0").tolist() == [b"0.500000:1:dog", b"0.250000:0:cat"]


def test_async_infer_over_http(http: Any) -> None:
    pending = [http.async_infer("identity", [tensor(httpclient, X + i)]) for i in range(8)]

    for index, item in enumerate(pending):
        np.testing.assert_array_equal(item.get_result().as_numpy("OUTPUT0"), X + index)


def test_async_infer_over_grpc(grpc: Any) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()

    for _ in range(4):
        grpc.async_infer(
            "identity",
            [tensor(grpcclient, X)],
            callback=lambda result, error: answers.put(error or result.as_numpy("OUTPUT0")),
        )

    for _ in range(4):
        np.testing.assert_array_equal(answers.get(timeout=10), X)


def test_stream_infer_keeps_the_order_and_goes_on_after_an_error(grpc: Any) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))

    grpc.async_stream_infer("slow", [tensor(grpcclient, X[0])], request_id="1")
    grpc.async_stream_infer("no_such_model", [tensor(grpcclient, X)], request_id="2")
    grpc.async_stream_infer("identity", [tensor(grpcclient, X)], request_id="3")
    got = [answers.get(timeout=10) for _ in range(3)]
    grpc.stop_stream()

    assert got[0][0].get_response().id == "1"
    assert "no_such_model" in str(got[1][1])
    assert got[2][0].get_response().id == "3"
    assert got[2][0].get_response().parameters["triton_final_response"].bool_param


async def test_asyncio_http_client(served: ServerProcess) -> None:
    async with httpaio.InferenceServerClient(served.http) as client:
        assert await client.is_server_ready()
        assert (await client.get_model_metadata("identity"))["name"] == "identity"
        result = await client.infer("plus_one", [tensor(httpclient, X, "x")])

    np.testing.assert_array_equal(result.as_numpy("y"), X + 1)


async def test_asyncio_grpc_client(served: ServerProcess) -> None:
    async with grpcaio.InferenceServerClient(served.grpc) as client:
        assert await client.is_server_ready()
        result = await client.infer("plus_one", [tensor(grpcclient, X, "x")])

    np.testing.assert_array_equal(result.as_numpy("y"), X + 1)


def test_statistics_count_requests_and_items(http: Any, grpc: Any) -> None:
    before = http.get_inference_statistics("image")["model_stats"][0]

    http.infer("image", [tensor(httpclient, np.zeros((4, 3, 224, 224), dtype=np.float32))])

    after = grpc.get_inference_statistics("image").model_stats[0]
    assert after.inference_count - before["inference_count"] == 4
    assert after.execution_count - before["execution_count"] == 1
    assert after.inference_stats.success.count - before["inference_stats"]["success"]["count"] == 1


def test_unload_and_load(client: Any) -> None:
    def state() -> str:
        index = client.get_model_repository_index()
        rows = index if isinstance(index, list) else index.models
        get = dict.get if isinstance(index, list) else getattr
        return next(get(row, "state") for row in rows if get(row, "name") == "labelled")

    client.unload_model("labelled")
    wait_until_blocking(lambda: state() == "UNAVAILABLE")
    with pytest.raises(InferenceServerException, match="labelled"):
        client.get_model_metadata("labelled")

    client.load_model("labelled")
    assert state() == "READY"


def test_load_with_a_config_override_and_a_file(client: Any) -> None:
    config = {
        "backend": "identity",
        "max_batch_size": 2,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [5]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [5]}],
    }
    x = np.ones((1, 5), dtype=np.float32)

    client.load_model("labelled", config=json.dumps(config))
    result = client.infer("labelled", [tensor(module_of(client), x)])
    client.load_model("labelled")

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), x)


@pytest.mark.parametrize(
    ("model", "version", "words"),
    [("no_such_model", "", "no_such_model"), ("identity", "9", "9")],
)
def test_unknown_models_and_versions_are_errors_that_name_them(
    client: Any, model: str, version: str, words: str
) -> None:
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.infer(model, [tensor(module_of(client), X)], model_version=version)

    assert caught.value.status() in {"404", "StatusCode.NOT_FOUND"}


def test_wrong_shape_and_type_are_errors_that_name_the_input(client: Any) -> None:
    module = module_of(client)
    wide = tensor(module, np.zeros((2, 5), dtype=np.float32), "x")
    other = tensor(module, np.zeros((2, 4), dtype=np.float64), "x", "FP64")

    for wrong in (wide, other):
        with pytest.raises(InferenceServerException, match="x") as caught:
            client.infer("plus_one", [wrong])
        assert caught.value.status() in {"400", "StatusCode.INVALID_ARGUMENT"}


def test_loading_an_unknown_model_fails_with_its_name(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="no_such_model"):
        client.load_model("no_such_model")


def test_a_client_that_gave_up_leaves_the_server_working(grpc: Any) -> None:
    with pytest.raises(InferenceServerException, match="Deadline"):
        grpc.infer("slow", [tensor(grpcclient, X[0])], client_timeout=0.05)

    assert grpc.infer("slow", [tensor(grpcclient, X[0])]) is not None


def test_grpc_typed_contents_and_health_check(served: ServerProcess) -> None:
    import grpc as grpc_library
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    request = service_pb2.ModelInferRequest(model_name="identity")
    item = request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 2])
    item.contents.fp32_contents.extend([1.5, 2.5])
    with grpc_library.insecure_channel(served.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        with pytest.raises(grpc_library.RpcError, match="INVALID_ARGUMENT"):
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"no message")

    assert answer.raw_output_contents[0] == np.array([1.5, 2.5], dtype=np.float32).tobytes()
    assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_log_settings_change_at_once_and_back(client: Any, served: ServerProcess) -> None:
    as_json = {} if module_of(client) is httpclient else {"as_json": True}
    changed = client.update_log_settings(
        {"log_verbose_level": 1, "log_info": False, "log_format": "ISO8601"}, **as_json
    )
    client.update_log_settings({"log_info": True, "log_verbose_level": 0, "log_format": "default"})

    settings = client.get_log_settings(**as_json)
    assert "ISO8601" in str(changed)
    assert "default" in str(settings)
    # The server's log comes through a pipe, after the answer.
    wait_until_blocking(lambda: any("log settings changed" in line for line in list(served.log)))


def test_shared_memory_is_off_and_says_so(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="allow-client-shm") as caught:
        client.register_system_shared_memory("r", "/r", 8)

    assert caught.value.status() in {"501", "StatusCode.UNIMPLEMENTED"}
    status = client.get_system_shared_memory_status()
    assert not (status if isinstance(status, list) else status.regions)


def test_the_client_itself_refuses_reserved_parameters(client: Any) -> None:
    """TOOL-005: they never reach the server."""
    for name in ("sequence_id", "priority", "binary_data_output"):
        with pytest.raises(InferenceServerException, match="reserved"):
            client.infer("identity", [tensor(module_of(client), X)], parameters={name: 1})
