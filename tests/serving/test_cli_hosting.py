"""Options of the routes for OpenAI, SageMaker and Vertex AI. CLI-070, CLI-071, CLI-170."""

from __future__ import annotations

import pytest

from serving import cli
from serving.options import FrontendOptions, SageMakerOptions, VertexOptions

VERTEX = {"AIP_MODE": "PREDICTION", "AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}


def parse(*arguments: str, **environment: str) -> FrontendOptions:
    line = cli.parse(["--model-repository=/models", *arguments], environment)
    assert line is not None
    return line.frontends


def test_cli_070_sagemaker_is_off_and_its_environment_unread_unless_asked_for() -> None:
    assert parse(SAGEMAKER_TRITON_PING_MODE="nonsense").sagemaker == SageMakerOptions()


def test_cli_070_sagemaker_takes_its_models_name_and_kind_from_the_environment() -> None:
    options = parse(
        "--allow-sagemaker=true",
        "--sagemaker-port=9000",
        "--sagemaker-thread-count=4",
        SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="m",
        SAGEMAKER_TRITON_INFERENCE_TYPE="generate",
    )

    assert options.sagemaker == SageMakerOptions(True, "0.0.0.0", 9000, "ready", "m", "generate")
    assert options.allow_http
    with pytest.raises(
        cli.CommandLineError, match="SAGEMAKER_TRITON_PING_MODE is 'no'; it must be"
    ):
        parse("--allow-sagemaker=true", SAGEMAKER_TRITON_PING_MODE="no")


def test_cli_071_vertex_is_on_and_http_and_grpc_off_where_the_platform_says_prediction() -> None:
    assert parse().vertex == VertexOptions()
    assert parse(**VERTEX | {"AIP_MODE": "TRAINING"}).vertex == VertexOptions()

    options = parse(**VERTEX, AIP_HTTP_PORT="7080")

    assert options.vertex == VertexOptions(True, "0.0.0.0", 7080, "/predict", "/health")
    assert (options.allow_http, options.allow_grpc, options.allow_metrics) == (False, False, True)
    options = parse("--vertex-ai-port=1", "--allow-http=1", "--http-address=::1", **VERTEX)
    assert (options.vertex.port, options.vertex.address, options.allow_http) == (1, "::1", True)
    assert not parse("--allow-vertex-ai=false", **VERTEX).vertex.is_allowed


@pytest.mark.parametrize("missing", ["AIP_PREDICT_ROUTE", "AIP_HEALTH_ROUTE"])
def test_cli_071_vertex_needs_its_routes(missing: str) -> None:
    with pytest.raises(cli.CommandLineError, match=f"{missing} is not defined"):
        parse(**VERTEX | {missing: ""})


def test_cli_071_port_of_the_environment_is_checked() -> None:
    with pytest.raises(cli.CommandLineError, match="AIP_HTTP_PORT expects a whole number"):
        parse(**VERTEX, AIP_HTTP_PORT="x")


def test_cli_170_ports_of_the_platforms_must_not_meet_others() -> None:
    with pytest.raises(
        cli.CommandLineError, match="--sagemaker-port and --vertex-ai-port are both"
    ):
        parse("--allow-sagemaker=true", **VERTEX)
    with pytest.raises(
        cli.CommandLineError, match="--http-port and --sagemaker-port are both 8000"
    ):
        parse("--allow-sagemaker=true", "--sagemaker-port=8000")


def test_cli_170_other_services_stay_inside_sagemakers_safe_range() -> None:
    within = ("--allow-sagemaker=true", "--sagemaker-safe-port-range=8000-8002")
    assert parse(*within).sagemaker.port == 8080
    with pytest.raises(cli.CommandLineError, match="--grpc-port is 9001, outside"):
        parse(*within, "--grpc-port=9001")
    assert parse(*within, "--grpc-port=9001", "--allow-grpc=false").http_port == 8000
    assert parse("--sagemaker-safe-port-range=1-2").http_port == 8000
    with pytest.raises(cli.CommandLineError, match="expects <lowest>-<highest>"):
        parse("--sagemaker-safe-port-range=9-1")


def test_tool_066_openai_routes_are_on() -> None:
    assert parse().allow_openai
    options = parse("--allow-openai=false", "--default-max-tokens=100")
    assert (options.allow_openai, options.openai_default_max_tokens) == (False, 100)


def test_tool_066_openai_routes_may_have_a_port_of_their_own() -> None:
    assert parse().openai_port is None
    assert parse("--openai-port=9000").openai_port == 9000
    with pytest.raises(cli.CommandLineError, match="--openai-port and --grpc-port are both 8001"):
        parse("--openai-port=8001")
