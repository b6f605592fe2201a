"""The metrics page of a server: what is on it while models come, fail and go. In this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.errors import ServingError
from serving.frontends import start_frontends
from serving.frontends.http_messages import HttpRequest, HttpResponse, ResponseStream
from serving.frontends.metrics_http import MetricsRoutes
from serving.metrics_config import MetricsConfig
from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_ensemble, write_identity

SMALL_QUEUE = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }\n"


class Taken:
    """A reply that keeps what it is given."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, response: HttpResponse) -> None:
        self.text = b"".join(map(bytes, response.parts)).decode()

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        raise AssertionError("a page is no stream")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ModelServer]:
    config = MetricsConfig(histogram_latencies=True, summary_latencies=True)
    made = ModelServer(
        ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT, metrics_config=config)
    )
    await made.start()
    yield made
    await made.stop()


def page_of(routes: MetricsRoutes) -> str:
    reply = Taken()
    routes.handle(HttpRequest(b"GET", b"/metrics", {}), reply)
    return reply.text


def value(page: str, name: str, model: str, more: str = "") -> float:
    series = re.escape(f'{name}{{model="{model}",version="1"{more}}}')
    found = re.search(rf"^{series} (\S+)$", page, re.MULTILINE)
    assert found, f"{series} is not in\n{page}"
    return float(found[1])


async def test_series_come_with_a_model_and_go_with_it(server: ModelServer, tmp_path: Path) -> None:
    """MET-070, MET-006."""
    write_identity(tmp_path, "a")
    routes = MetricsRoutes(server, FrontendOptions())
    assert 'model="a"' not in page_of(routes)

    await server.load_model("a")
    page = page_of(routes)
    assert value(page, "nv_model_load_duration_secs", "a") > 0
    assert value(page, "nv_inference_request_failure", "a", ',reason="CANCELED"') == 0
    assert value(page, "nv_inference_first_response_histogram_ms_count", "a") == 0
    assert value(page, "nv_inference_queue_summary_us_count", "a") == 0

    await server.unload_model("a")
    await server.settled()
    page = page_of(routes)
    assert 'model="a"' not in page
    assert re.search(r'^conch_model_state_changes_total\{state="READY"\} 1$', page, re.MULTILINE)


async def test_a_failed_part_is_a_failure_of_its_ensemble_too(
    server: ModelServer, tmp_path: Path
) -> None:
    """MET-072: the part says why, the ensemble counts it as OTHER. MET-002, MET-005."""
    write_identity(tmp_path, "a", extra=SMALL_QUEUE, delay_ms=30)
    write_ensemble(tmp_path, "e", "a")
    await server.load_model("e")
    routes = MetricsRoutes(server, FrontendOptions())

    asked = [asyncio.ensure_future(server.infer_async(identity_request("e"))) for _ in range(4)]
    await asyncio.sleep(0)
    page = page_of(routes)
    assert value(page, "nv_inference_pending_request_count", "a") == 1
    assert value(page, "nv_inference_pending_request_count", "e") == 0

    answers = await asyncio.gather(*asked, return_exceptions=True)
    failed = sum(isinstance(answer, ServingError) for answer in answers)
    page = page_of(routes)
    assert 1 <= failed < 4
    assert value(page, "nv_inference_request_failure", "a", ',reason="REJECTED"') == failed
    assert value(page, "nv_inference_request_failure", "e", ',reason="OTHER"') == failed
    assert value(page, "nv_inference_request_failure", "e", ',reason="REJECTED"') == 0
    assert value(page, "nv_inference_request_success", "e") == 4 - failed


async def test_no_metrics_are_served_where_they_are_not_allowed(server: ModelServer) -> None:
    """MET-071."""
    options = FrontendOptions(allow_http=False, allow_grpc=False, allow_metrics=False)
    doors = await start_frontends(server, options)
    try:
        assert (doors.metrics, doors.metrics_port) == (None, 0)
    finally:
        await doors.stop()
