"""How loaded a model is, told with its answers to who asks for it (ORCA): how full its KV cache is.

A load balancer sends `endpoint-load-metrics-format: text` or `json`. The figures are metrics that
the model itself publishes: blocks, as TensorRT-LLM counts them, or the share in use, as vLLM does.
Loop thread. Source: spec HTTP-057.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from serving.frontends.http_messages import HttpRequest, HttpResponse, Reply, ResponseStream

if TYPE_CHECKING:
    from serving.custom_metrics import CustomMetrics
    from serving.server import ModelServer

FORMAT = b"endpoint-load-metrics-format"
_HEADER = b"endpoint-load-metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_BLOCK_TYPE = "kv_cache_block_type"
_SHARE = "vllm:kv_cache_usage_perc"
_CAPACITY = "vllm:kv_cache_max_tokens"


def with_load(http: HttpRequest, reply: Reply, model: str, server: ModelServer) -> Reply:
    """The reply to use from now on; the same one where nobody asks."""
    wanted = http.headers.get(FORMAT)
    if wanted is None:
        return reply
    return _LoadReply(reply, wanted.strip().lower(), model, server.custom_metrics)


class _LoadReply:
    def __init__(self, reply: Reply, wanted: bytes, model: str, metrics: CustomMetrics) -> None:
        self._reply = reply
        self._wanted = wanted
        self._model = model
        self._metrics = metrics

    def __call__(self, response: HttpResponse) -> None:
        self._reply(self._told(response))

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        return self._reply.start_stream(self._told(response))

    def _told(self, response: HttpResponse) -> HttpResponse:
        value = _value(self._wanted, _figures(self._model, self._metrics))
        if not value:
            return response
        # The head that others have had before does not tell it.
        return replace(response, headers=[*response.headers, (_HEADER, value)], head=b"")


def _figures(model: str, metrics: CustomMetrics) -> dict[str, float]:
    """Empty where the model publishes none."""
    blocks = {
        labels.get(_BLOCK_TYPE, ""): value for labels, value in metrics.of_model(_BLOCKS, model)
    }
    if {"used", "max", "tokens_per"} <= blocks.keys() and blocks["max"]:
        return {
            "kv_cache_utilization": blocks["used"] / blocks["max"],
            "max_token_capacity": blocks["max"] * blocks["tokens_per"],
        }
    figures = {}
    for name, family in (("kv_cache_utilization", _SHARE), ("max_token_capacity", _CAPACITY)):
        for _, value in metrics.of_model(family, model):
            figures[name] = value
    return figures


def _value(wanted: bytes, figures: dict[str, float]) -> bytes:
    """Empty for a format that there is not, which is no reason to refuse the request."""
    if not figures:
        return b""
    if wanted == b"json":
        return b"JSON " + orjson.dumps({"named_metrics": figures})
    if wanted == b"text":
        told = (f"named_metrics.{name}={value:g}" for name, value in figures.items())
        return b"TEXT " + ", ".join(told).encode()
    return b""
