"""Restricted APIs (HTTP-060, HTTP-A11, GRPC-046, GRPC-A09) and TLS (GRPC-043) of a real server."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from benchmarks.certificates import write_certificate
from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess

METADATA = {"triton-grpc-protocol-admin": "s3cret"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = write_certificate(folder, "authority")
    write_certificate(folder, "server", authority)
    write_certificate(folder, "client", authority)
    return folder


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[ServerProcess]:
    repository = write_repository(tmp_path_factory.mktemp("repository"))
    with ServerProcess(
        (
            f"--model-repository={repository}",
            "--http-restricted-api=model-repository,logging:x-admin=s3cret",
            "--http-restricted-api=statistics:x-reader=yes",
            "--grpc-restricted-protocol=model-repository,inference:admin=s3cret",
            "--grpc-use-ssl-mutual=true",
            f"--grpc-server-cert={certificates}/server.crt",
            f"--grpc-server-key={certificates}/server.key",
            f"--grpc-root-cert={certificates}/authority.crt",
            "--grpc-infer-response-compression-level=high",
            "--grpc-max-connection-age=60",
            "--http-thread-count=8",
            "--allow-cpu-metrics=false",
        )
    ) as server:
        yield server


def status(
    server: ServerProcess, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.http, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "header"),
    [
        ("POST", "/v2/repository/index", "x-admin"),
        ("POST", "/v2/repository/models/identity/load", "x-admin"),
        ("GET", "/v2/logging", "x-admin"),
        ("GET", "/v2/models/stats", "x-reader"),
        ("GET", "/v2/models/identity/versions/1/stats", "x-reader"),
        ("GET", "http://proxy/v2/logging", "x-admin"),
    ],
)
def test_a_restricted_api_names_the_header_that_it_expects(
    guarded: ServerProcess, method: str, path: str, header: str
) -> None:
    for wrong in ({}, {header: "S3cret"}, {"x-other": "s3cret"}):
        code, text = status(guarded, method, path, wrong)
        assert (code, header in text) == (403, True)


def test_the_header_opens_it_and_everything_else_is_open(guarded: ServerProcess) -> None:
    assert status(guarded, "POST", "/v2/repository/index", {"X-Admin": "s3cret"})[0] == 200
    assert status(guarded, "GET", "/v2/models/stats", {"x-reader": "yes"})[0] == 200
    for path in ("/v2/health/ready", "/v2", "/v2/models/identity/config", "/v2/nothing"):
        assert status(guarded, "GET", path)[0] == (404 if path == "/v2/nothing" else 200)


def with_tls(server: ServerProcess, certificates: Path, *, own: bool = True) -> Any:
    return tritonclient.grpc.InferenceServerClient(
        f"localhost:{server.ports['gRPC']}",
        ssl=True,
        root_certificates=str(certificates / "authority.crt"),
        private_key=str(certificates / "client.key") if own else None,
        certificate_chain=str(certificates / "client.crt") if own else None,
    )


def test_grpc_restricted_protocols_need_their_metadata(
    guarded: ServerProcess, certificates: Path
) -> None:
    tensor = tritonclient.grpc.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    with with_tls(guarded, certificates) as client:
        assert client.is_server_live()
        for call in (
            client.get_model_repository_index,
            lambda: client.infer("identity", [tensor]),
        ):
            with pytest.raises(
                InferenceServerException, match="expecting header 'triton-grpc-protocol-admin'"
            ) as caught:
                call()
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
        assert client.get_model_repository_index(headers=METADATA).models
        answer = client.infer("identity", [tensor], headers=METADATA)
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), np.ones((1, 4), np.float32))


def test_large_tensors_go_through_tls_too(guarded: ServerProcess, certificates: Path) -> None:
    """GRPC-043, and GRPC-044: what comes back is compressed."""
    values = np.arange(2_000_000, dtype=np.float32).reshape(1, -1)
    tensor = tritonclient.grpc.InferInput("INPUT0", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    with with_tls(guarded, certificates) as client:
        for compression in (None, "gzip"):
            answer = client.infer(
                "identity", [tensor], headers=METADATA, compression_algorithm=compression
            )
            np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), values)


def test_a_restricted_stream_is_refused_and_opened(
    guarded: ServerProcess, certificates: Path
) -> None:
    tensor = tritonclient.grpc.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))

    def errors(headers: dict[str, str] | None) -> list[Any]:
        answers: list[Any] = []
        with with_tls(guarded, certificates) as client:
            client.start_stream(lambda result, error: answers.append(error), headers=headers)
            # A stream that has been refused by now takes no request; its callback says why.
            with contextlib.suppress(InferenceServerException):
                client.async_stream_infer("identity", [tensor])
            client.stop_stream()
        return answers

    (refused,) = errors(None)
    assert "expecting header 'triton-grpc-protocol-admin'" in str(refused)
    assert errors(METADATA) == [None]


def test_mutual_tls_wants_a_certificate_of_the_client(
    guarded: ServerProcess, certificates: Path
) -> None:
    with (
        with_tls(guarded, certificates, own=False) as client,
        pytest.raises(InferenceServerException),
    ):
        client.is_server_live(client_timeout=10)
    with grpc.insecure_channel(guarded.grpc) as channel, pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=0.5)


def test_an_option_without_effect_is_told_at_start(guarded: ServerProcess) -> None:
    assert any("--http-thread-count has no effect" in line for line in list(guarded.log))


def test_metrics_of_the_machine_can_be_left_out(guarded: ServerProcess) -> None:
    connection = http.client.HTTPConnection(guarded.metrics, timeout=10)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    assert "nv_inference_count" in page
    assert "nv_cpu_utilization" not in page
