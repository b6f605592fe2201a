"""The options of OpenAI's, SageMaker's and Vertex AI's routes, and what the platforms' environment
adds to them.

Pure functions: the environment is handed in. Source: spec CLI-070, CLI-071, CLI-170, TOOL-066,
TOOL-080, TOOL-081.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from serving.cli_forms import Option, OptionError, boolean, integer, not_empty, port
from serving.options import FrontendOptions, SageMakerOptions, VertexOptions

if TYPE_CHECKING:
    from serving.cli import Values

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - the platforms call from outside the container
_INFERENCE_TYPES = ("infer", "generate", "generate_stream")
_PING_MODES = ("live", "ready")


def port_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text.strip())
    if match is None or not int(match[1]) <= int(match[2]) <= 65535:
        raise OptionError("expects <lowest>-<highest>, as in 8000-9000")
    return int(match[1]), int(match[2])


HOSTING_OPTIONS: Sequence[Option] = (
    Option(
        "allow-openai",
        "OpenAI",
        "<boolean>",
        "Serve /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models on the HTTP "
        "port. Default: true.",
        boolean,
    ),
    Option(
        "openai-port",
        "OpenAI",
        "<port>",
        "A port of their own for these routes, with /metrics and /health/ready. Default: none.",
        port,
    ),
    Option(
        "openai-default-max-tokens",
        "OpenAI",
        "<integer>",
        "max_tokens of requests that name none. Default: 16.",
        integer(1, 2**31 - 1),
        alias="default-max-tokens",
    ),
    Option(
        "allow-sagemaker",
        "SageMaker",
        "<boolean>",
        "Serve what Amazon SageMaker calls. Default: false.",
        boolean,
    ),
    Option(
        "sagemaker-port",
        "SageMaker",
        "<port>",
        "On the address of --http-address, or everywhere where that is not given. Default: 8080.",
        port,
    ),
    Option(
        "sagemaker-safe-port-range",
        "SageMaker",
        "<lowest>-<highest>",
        "Other services must have their ports in it. Default: any.",
        port_range,
    ),
    Option(
        "allow-vertex-ai",
        "Vertex AI",
        "<boolean>",
        "Serve what Vertex AI calls. Default: true where AIP_MODE is PREDICTION, and HTTP and gRPC "
        "are false then.",
        boolean,
    ),
    Option(
        "vertex-ai-port",
        "Vertex AI",
        "<port>",
        "On addresses as --sagemaker-port. Default: AIP_HTTP_PORT, or 8080.",
        port,
    ),
    Option(
        "vertex-ai-default-model",
        "Vertex AI",
        "<model>",
        "Whom predictions go to. Default: the only model.",
        not_empty,
    ),
)


def with_hosting(
    options: FrontendOptions, values: Values, environment: Mapping[str, str]
) -> FrontendOptions:
    """Raises OptionError."""
    on_vertex = environment.get("AIP_MODE") == "PREDICTION"
    address = values.get("http-address", _EVERYWHERE)
    return replace(
        options,
        allow_http=values.get("allow-http", options.allow_http and not on_vertex),
        allow_grpc=values.get("allow-grpc", options.allow_grpc and not on_vertex),
        allow_openai=values.get("allow-openai", options.allow_openai),
        openai_port=values.get("openai-port", options.openai_port),
        openai_default_max_tokens=values.get(
            "openai-default-max-tokens", options.openai_default_max_tokens
        ),
        sagemaker=_sagemaker(values, environment, address),
        vertex=_vertex(values, environment, address, on_vertex),
    )


def _sagemaker(values: Values, environment: Mapping[str, str], address: str) -> SageMakerOptions:
    default = SageMakerOptions()
    if not values.get("allow-sagemaker", default.is_allowed):
        return default
    prefix = "SAGEMAKER_TRITON_"
    return SageMakerOptions(
        True,
        address,
        values.get("sagemaker-port", default.port),
        _one_of(environment, f"{prefix}PING_MODE", _PING_MODES, default.ping_mode),
        environment.get(f"{prefix}DEFAULT_MODEL_NAME", default.default_model),
        _one_of(environment, f"{prefix}INFERENCE_TYPE", _INFERENCE_TYPES, default.inference_type),
    )


def _vertex(
    values: Values, environment: Mapping[str, str], address: str, on_vertex: bool
) -> VertexOptions:
    default = VertexOptions()
    if not values.get("allow-vertex-ai", on_vertex):
        return default
    try:
        its_port = port(environment.get("AIP_HTTP_PORT") or str(default.port))
    except OptionError as error:
        raise OptionError(f"the environment variable AIP_HTTP_PORT {error}") from None
    return VertexOptions(
        True,
        address,
        values.get("vertex-ai-port", its_port),
        _route(environment, "AIP_PREDICT_ROUTE"),
        _route(environment, "AIP_HEALTH_ROUTE"),
        values.get("vertex-ai-default-model", default.default_model),
    )


def _one_of(environment: Mapping[str, str], name: str, known: Sequence[str], default: str) -> str:
    value = environment.get(name) or default
    if value not in known:
        raise OptionError(
            f"the environment variable {name} is '{value}'; it must be one of {', '.join(known)}"
        )
    return value


def _route(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value.startswith("/"):
        raise OptionError(
            f"{name} is not defined for the Vertex AI endpoint: set the environment variable to a "
            "path, as in /predict, or start with --allow-vertex-ai=false"
        )
    return value


Service = tuple[str, bool, str, int]
"""The option of its port, whether it runs, address and port."""


def services_of(options: FrontendOptions) -> list[Service]:
    sagemaker, vertex = options.sagemaker, options.vertex
    openai_port = options.openai_port
    return [
        ("--openai-port", openai_port is not None, options.http_address, openai_port or 0),
        ("--http-port", options.allow_http, options.http_address, options.http_port),
        ("--grpc-port", options.allow_grpc, options.grpc_address, options.grpc_port),
        ("--metrics-port", options.allow_metrics, options.metrics_address, options.metrics_port),
        ("--sagemaker-port", sagemaker.is_allowed, sagemaker.address, sagemaker.port),
        ("--vertex-ai-port", vertex.is_allowed, vertex.address, vertex.port),
    ]


def check_safe_range(values: Values, options: FrontendOptions) -> None:
    """Raises OptionError where a service beside SageMaker's has a port outside the range."""
    safe: tuple[int, int] | None = values.get("sagemaker-safe-port-range", None)
    if safe is None or not options.sagemaker.is_allowed:
        return
    for option, is_allowed, _, number in services_of(options):
        if is_allowed and option != "--sagemaker-port" and not safe[0] <= number <= safe[1]:
            raise OptionError(
                f"{option} is {number}, outside --sagemaker-safe-port-range={safe[0]}-{safe[1]}; "
                "give it a port inside, or turn the service off"
            )
