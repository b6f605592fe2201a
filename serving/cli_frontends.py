"""The options of the front ends: HTTP, gRPC, client shared memory, metrics, and what they mean.

Pure functions. Source: spec CLI-050..080, GRPC-040..047, HTTP-060.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serving import metrics_config, restrictions
from serving.cli_forms import (
    Option,
    OptionError,
    boolean,
    decimal,
    integer,
    not_empty,
    path,
    port,
    regex,
)
from serving.cli_trace import trace_settings
from serving.options import FrontendOptions, GrpcOptions
from serving.restrictions import Restriction

if TYPE_CHECKING:
    from serving.cli import Values

_COMPRESSION_LEVELS = ("none", "low", "medium", "high")
_INT32_MAX = 2**31 - 1


def restriction(text: str) -> Restriction:
    try:
        return restrictions.parse(text)
    except ValueError as error:
        raise OptionError(str(error)) from None


def metrics_setting(text: str) -> metrics_config.Setting:
    try:
        return metrics_config.parse_setting(text)
    except ValueError as error:
        raise OptionError(str(error)) from None


def compression_level(text: str) -> int:
    if text not in _COMPRESSION_LEVELS:
        raise OptionError(f"expects one of {', '.join(_COMPRESSION_LEVELS)}")
    return _COMPRESSION_LEVELS.index(text)


FRONTEND_OPTIONS: Sequence[Option] = (
    Option("allow-http", "HTTP", "<boolean>", "Serve HTTP. Default: true.", boolean),
    Option(
        "http-address",
        "HTTP",
        "<address>",
        "Default: 127.0.0.1. Only this machine can reach it; tritonserver's default is 0.0.0.0.",
        not_empty,
    ),
    Option("http-port", "HTTP", "<port>", "0 takes a free one. Default: 8000.", port),
    Option(
        "reuse-http-port",
        "HTTP",
        "<boolean>",
        "Several servers of this machine may share the port. Default: false.",
        boolean,
    ),
    Option(
        "http-header-forward-pattern",
        "HTTP",
        "<regex>",
        "Request headers that become request parameters. Default: none.",
        regex,
    ),
    Option(
        "http-max-input-size",
        "HTTP",
        "<bytes>",
        "Largest JSON of a request, and largest JSON tensor. Default: 67108864.",
        integer(1),
    ),
    Option(
        "http-restricted-api",
        "HTTP",
        "<category>,...:<header>=<value>",
        "Calls of these kinds need the header. Repeatable. Kinds: "
        f"{', '.join(restrictions.CATEGORIES)}.",
        restriction,
        is_repeatable=True,
    ),
    Option(
        "allow-client-shm",
        "Shared memory",
        "<boolean>",
        "Callers on this machine may register shared memory for tensors. Default: false.",
        boolean,
    ),
    Option("allow-grpc", "gRPC", "<boolean>", "Serve gRPC. Default: true.", boolean),
    Option(
        "grpc-address",
        "gRPC",
        "<address>",
        "Default: 127.0.0.1 (tritonserver: 0.0.0.0).",
        not_empty,
    ),
    Option("grpc-port", "gRPC", "<port>", "0 takes a free one. Default: 8001.", port),
    Option(
        "reuse-grpc-port",
        "gRPC",
        "<boolean>",
        "Several servers of this machine may share the port. Default: false.",
        boolean,
    ),
    Option(
        "grpc-header-forward-pattern",
        "gRPC",
        "<regex>",
        "Metadata that becomes request parameters; its names are in lower case. Default: none.",
        regex,
    ),
    Option(
        "grpc-restricted-protocol",
        "gRPC",
        "<category>,...:<header>=<value>",
        f"As --http-restricted-api; the header's name gets the prefix {restrictions.GRPC_PREFIX}.",
        restriction,
        is_repeatable=True,
    ),
    Option("grpc-use-ssl", "gRPC", "<boolean>", "Serve with TLS. Default: false.", boolean),
    Option(
        "grpc-use-ssl-mutual",
        "gRPC",
        "<boolean>",
        "Serve with TLS and ask clients for a certificate. Default: false.",
        boolean,
    ),
    Option("grpc-server-cert", "gRPC", "<file>", "The server's certificate chain, PEM.", path),
    Option("grpc-server-key", "gRPC", "<file>", "Its private key, PEM.", path),
    Option("grpc-root-cert", "gRPC", "<file>", "Who signs the clients' certificates, PEM.", path),
    Option(
        "grpc-infer-response-compression-level",
        "gRPC",
        "<none|low|medium|high>",
        "Default: none.",
        compression_level,
    ),
    Option(
        "grpc-keepalive-time",
        "gRPC",
        "<milliseconds>",
        "An idle connection is pinged after that time. Default: 7200000.",
        integer(1, _INT32_MAX),
    ),
    Option(
        "grpc-keepalive-timeout",
        "gRPC",
        "<milliseconds>",
        "It is closed when no answer comes for so long. Default: 20000.",
        integer(1, _INT32_MAX),
    ),
    Option(
        "grpc-keepalive-permit-without-calls",
        "gRPC",
        "<boolean>",
        "Ping connections without calls too. Default: false.",
        boolean,
    ),
    Option(
        "grpc-http2-max-pings-without-data",
        "gRPC",
        "<integer>",
        "Pings in a row without data; 0 is no limit. Default: 2.",
        integer(0, _INT32_MAX),
    ),
    Option(
        "grpc-http2-min-recv-ping-interval-without-data",
        "gRPC",
        "<milliseconds>",
        "A client that pings more often makes a strike. Default: 300000.",
        integer(0, _INT32_MAX),
    ),
    Option(
        "grpc-http2-max-ping-strikes",
        "gRPC",
        "<integer>",
        "Strikes before the connection is closed; 0 is no limit. Default: 2.",
        integer(0, _INT32_MAX),
    ),
    Option(
        "grpc-max-connection-age",
        "gRPC",
        "<seconds>",
        "Connections are closed in order after that time. Default: never.",
        integer(1, _INT32_MAX // 1000),
    ),
    Option(
        "grpc-max-connection-age-grace",
        "gRPC",
        "<seconds>",
        "How long their calls may then go on. Default: without limit.",
        integer(0, _INT32_MAX // 1000),
    ),
    Option("allow-metrics", "Metrics", "<boolean>", "Serve /metrics. Default: true.", boolean),
    Option(
        "metrics-address", "Metrics", "<address>", "Default: what --http-address is.", not_empty
    ),
    Option("metrics-port", "Metrics", "<port>", "0 takes a free one. Default: 8002.", port),
    Option(
        "allow-gpu-metrics", "Metrics", "<boolean>", "Figures of the GPUs. Default: true.", boolean
    ),
    Option(
        "allow-cpu-metrics",
        "Metrics",
        "<boolean>",
        "CPU and memory of the machine. Default: true.",
        boolean,
    ),
    Option(
        "metrics-interval-ms",
        "Metrics",
        "<milliseconds>",
        "How old figures of devices and machine may be. Default: 2000.",
        decimal(1, _INT32_MAX),
    ),
    Option(
        "metrics-config",
        "Metrics",
        "<key>=<value>",
        "counter_latencies (true), histogram_latencies (false), summary_latencies (false), "
        "summary_quantiles (<quantile>:<error>,...). Repeatable.",
        metrics_setting,
        is_repeatable=True,
    ),
)

_BYTES_OF_DEVICES = {
    "cuda-memory-pool-byte-size": "the runtimes manage the memory of a device",
    "cuda-virtual-address-size": "states of sequences grow without reserved addresses",
}
NO_EFFECT = {
    "http-thread-count": "one event loop serves all connections",
    "grpc-infer-thread-count": "one event loop serves all calls",
    "sagemaker-thread-count": "one event loop serves all connections",
    "vertex-ai-thread-count": "one event loop serves all connections",
    "grpc-infer-allocation-pool-size": "messages are not pooled",
    "grpc-max-response-pool-size": "responses are not pooled",
    "buffer-manager-thread-count": "requests are gathered in the instances' own threads",
    "pinned-memory-pool-byte-size": "the runtimes stage their own copies to and from a device",
    "enable-peer-access": "the runtimes decide how tensors go from device to device",
    **_BYTES_OF_DEVICES,
}
"""tritonserver's options that tune what Conch does in another way: accepted, with a warning."""


_FORMS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "enable-peer-access": ("<boolean>", boolean),
}


def no_effect_options() -> list[Option]:
    group = "Accepted without effect"
    options = []
    for name, reason in NO_EFFECT.items():
        form, convert = _FORMS.get(name, ("<integer>", integer(0)))
        is_of_device = name in _BYTES_OF_DEVICES
        if is_of_device:
            form, convert = "<gpu>:<bytes>", _device_bytes
        options.append(Option(name, group, form, f"{reason}.", convert, is_repeatable=is_of_device))
    return options


def _device_bytes(text: str) -> str:
    if re.fullmatch("[0-9]{1,4}:[0-9]{1,19}", text) is None:
        raise OptionError("expects <gpu>:<bytes>, as in 0:67108864")
    return text


def frontend_options(values: Values, warnings: list[str]) -> FrontendOptions:
    """Raises OptionError where options do not go together."""
    default = FrontendOptions()
    http_address = values.get("http-address", default.http_address)
    return FrontendOptions(
        allow_http=values.get("allow-http", default.allow_http),
        http_address=http_address,
        http_port=values.get("http-port", default.http_port),
        http_reuse_port=values.get("reuse-http-port", default.http_reuse_port),
        http_max_input_size=values.get("http-max-input-size", default.http_max_input_size),
        http_header_forward_pattern=values.get("http-header-forward-pattern", ""),
        http_restricted=_restricted(values, "http-restricted-api"),
        allow_client_shm=values.get("allow-client-shm", default.allow_client_shm),
        trace=trace_settings(values, warnings),
        allow_grpc=values.get("allow-grpc", default.allow_grpc),
        grpc_address=values.get("grpc-address", default.grpc_address),
        grpc_port=values.get("grpc-port", default.grpc_port),
        grpc=_grpc_options(values),
        allow_metrics=values.get("allow-metrics", default.allow_metrics),
        metrics_address=values.get("metrics-address", http_address),
        metrics_port=values.get("metrics-port", default.metrics_port),
        allow_gpu_metrics=values.get("allow-gpu-metrics", default.allow_gpu_metrics),
        allow_cpu_metrics=values.get("allow-cpu-metrics", default.allow_cpu_metrics),
        metrics_interval_ms=values.get("metrics-interval-ms", default.metrics_interval_ms),
    )


def _restricted(values: Values, name: str) -> tuple[Restriction, ...]:
    """Raises OptionError where one category is restricted twice."""
    given = tuple(values.all(name))
    category = restrictions.twice(given)
    if category:
        raise OptionError(f"--{name}: category '{category}' is given twice; put it into one group")
    return given


def _grpc_options(values: Values) -> GrpcOptions:
    default = GrpcOptions()
    is_mutual = values.get("grpc-use-ssl-mutual", default.use_ssl_mutual)
    use_ssl = is_mutual or values.get("grpc-use-ssl", default.use_ssl)
    none: Path | None = None
    certificate, key = values.get("grpc-server-cert", none), values.get("grpc-server-key", none)
    root = values.get("grpc-root-cert", none)
    if use_ssl and (certificate is None or key is None):
        raise OptionError("TLS for gRPC needs --grpc-server-cert and --grpc-server-key")
    if is_mutual and root is None:
        raise OptionError("--grpc-use-ssl-mutual needs --grpc-root-cert, to know clients by")
    return GrpcOptions(
        restricted=_restricted(values, "grpc-restricted-protocol"),
        header_forward_pattern=values.get("grpc-header-forward-pattern", ""),
        reuse_port=values.get("reuse-grpc-port", default.reuse_port),
        use_ssl=use_ssl,
        use_ssl_mutual=is_mutual,
        server_cert=certificate,
        server_key=key,
        root_cert=root,
        response_compression_level=values.get(
            "grpc-infer-response-compression-level", default.response_compression_level
        ),
        keepalive_time_ms=values.get("grpc-keepalive-time", default.keepalive_time_ms),
        keepalive_timeout_ms=values.get("grpc-keepalive-timeout", default.keepalive_timeout_ms),
        keepalive_permit_without_calls=values.get(
            "grpc-keepalive-permit-without-calls", default.keepalive_permit_without_calls
        ),
        max_pings_without_data=values.get(
            "grpc-http2-max-pings-without-data", default.max_pings_without_data
        ),
        min_recv_ping_interval_ms=values.get(
            "grpc-http2-min-recv-ping-interval-without-data", default.min_recv_ping_interval_ms
        ),
        max_ping_strikes=values.get("grpc-http2-max-ping-strikes", default.max_ping_strikes),
        max_connection_age_s=values.get("grpc-max-connection-age", default.max_connection_age_s),
        max_connection_age_grace_s=values.get(
            "grpc-max-connection-age-grace", default.max_connection_age_grace_s
        ),
    )
