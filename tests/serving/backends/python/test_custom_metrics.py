"""Metrics that models make, from their process to the page of the metrics port (PB-051)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.custom_metrics import CustomMetrics
from serving.errors import InvalidArgumentError, NotFoundError, ServingError
from tests.serving.backends.python.serving_models import ask_server, served, source_of
from tests.waiting import wait_until

COUNTING = """
    def initialize(self, args):
        family = pb_utils.MetricFamily("requests_total", "Seen", pb_utils.MetricFamily.COUNTER)
        self.counter = family.Metric(labels={"model": args["model_name"], "a": 'x"y'})
        gauge = pb_utils.MetricFamily("level", "How\\nhigh", kind=pb_utils.MetricFamily.GAUGE)
        self.gauge = gauge.Metric()
        seconds = pb_utils.MetricFamily("seconds", "Time", pb_utils.MetricFamily.HISTOGRAM)
        self.histogram = seconds.Metric(labels={}, buckets=[0.1, 1, 10])
"""
COUNT = """
self.counter.increment(len(requests))
self.counter.increment(0.5)
self.gauge.set(7)
self.gauge.increment(-9.5)
for value in (0.1, 0.5, 99):
    self.histogram.observe(value)
return [array_ok(np.array([self.counter.value(), self.gauge.value()], np.float32))]
"""


async def test_pb_051_counter_gauge_and_histogram_reach_the_page(tmp_path: Path):
    async with served(tmp_path, {"m": source_of(COUNT, COUNTING)}) as server:
        assert server.custom_metrics.render().count(" 0\n") > 3, "they are there from the start"
        assert (await ask_server(server, "m")).tolist() == [1.5, -2.5]
        assert (await ask_server(server, "m")).tolist() == [3.0, -2.5]
        page = server.custom_metrics.render()

    assert page == (
        "# HELP requests_total Seen\n# TYPE requests_total counter\n"
        'requests_total{a="x\\"y",model="m"} 3\n'
        "# HELP level How\\nhigh\n# TYPE level gauge\nlevel -2.5\n"
        "# HELP seconds Time\n# TYPE seconds histogram\n"
        'seconds_bucket{le="0.1"} 2\nseconds_bucket{le="1"} 4\nseconds_bucket{le="10"} 4\n'
        'seconds_bucket{le="+Inf"} 6\nseconds_sum 199.2\nseconds_count 6\n'
    )


async def test_pb_051_instances_and_models_share_a_metric_and_unloading_removes_it(tmp_path: Path):
    source = source_of(
        COUNT.replace("self.gauge.value()", "0"), COUNTING.replace("model_name", "x")
    )
    source = source.replace('args["x"]', '"shared"')
    models = {
        "a": (source, "instance_group [{ kind: KIND_CPU count: 2 }]"),
        "b": source,
    }
    async with served(tmp_path, models) as server:
        for name in ("a", "a", "b"):
            await ask_server(server, name)
        assert 'requests_total{a="x\\"y",model="shared"} 4.5\n' in server.custom_metrics.render()
        await server.unload_model("a")
        await server.settled()
        assert 'requests_total{a="x\\"y",model="shared"} 4.5\n' in server.custom_metrics.render()
        await server.unload_model("b")
        await server.settled()
        assert server.custom_metrics.render() == ""


async def test_what_threads_count_while_the_model_is_idle_arrives_too(tmp_path: Path):
    body = """
import threading
threading.Timer(0.2, self.counter.increment, (5,)).start()
return [ok()]
"""
    async with served(tmp_path, {"m": source_of(body, COUNTING)}) as server:
        await ask_server(server, "m")
        await wait_until(lambda: 'model="m"} 5\n' in server.custom_metrics.render())


async def test_a_metric_goes_with_its_last_reference(tmp_path: Path):
    body = "self.gauge = None\nreturn [ok()]"
    async with served(tmp_path, {"m": source_of(body, COUNTING)}) as server:
        assert "level" in server.custom_metrics.render()
        await ask_server(server, "m")
        assert "level" not in server.custom_metrics.render()


async def test_a_metric_outlives_the_process_that_died(tmp_path: Path):
    body = """
import os
self.counter.increment(1)
if value_in(requests[0])[0] == 0:
    os._exit(1)
return [array_ok(np.array([self.counter.value()], np.float32))]
"""
    async with served(tmp_path, {"m": source_of(body, COUNTING)}) as server:
        assert await ask_server(server, "m") == [1.0]
        with pytest.raises(ServingError, match="exited"):
            await ask_server(server, "m", 0.0)
        await wait_until(lambda: server.is_model_ready("m"))
        assert await ask_server(server, "m") == [2.0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("self.counter.increment(-1)", "can only be incremented monotonically"),
        ("self.counter.set(1)", "COUNTER does not support Set"),
        ("self.counter.observe(1)", "COUNTER does not support Observe"),
        ("self.histogram.value()", "HISTOGRAM does not support Value"),
        ("self.histogram.increment(1)", "HISTOGRAM does not support Increment"),
        (
            "pb_utils.MetricFamily('level', 'd', pb_utils.MetricFamily.COUNTER)",
            "already as a gauge",
        ),
        (
            "pb_utils.MetricFamily('1 x', 'd', pb_utils.MetricFamily.COUNTER)",
            "no name for a metric",
        ),
        ("pb_utils.MetricFamily('nv_x', 'd', pb_utils.MetricFamily.COUNTER)", "the server's own"),
        ("self.gauge._family.Metric(labels={'1': 'x'})", "no name for a label"),
        ("self.gauge._family.Metric(labels={'a': 1})", "must be str"),
        ("self.gauge._family.Metric(buckets=[1])", "which has no buckets"),
        ("self.histogram._family.Metric(labels={'a': 'b'})", "it needs buckets"),
        ("self.histogram._family.Metric(buckets=[2, 1])", "must grow"),
        ("self.histogram._family.Metric(buckets=[5])", "exists with other buckets"),
    ],
)
async def test_pb_051_an_illegal_operation_raises_with_the_rule(
    tmp_path: Path, call: str, told: str
):
    body = f"""
def family(name):
    pb_utils.MetricFamily(name, "d", pb_utils.MetricFamily.COUNTER)
{call}
return [ok()]
"""
    async with served(tmp_path, {"m": source_of(body, COUNTING)}) as server:
        with pytest.raises(ServingError, match=told):
            await ask_server(server, "m")


def test_what_is_gone_is_ignored_or_said():
    metrics = CustomMetrics()
    metrics.update("owner", 1, value=None, added=1.0, counts=[])
    metrics.drop("owner", 1)
    with pytest.raises(NotFoundError):
        metrics.value("owner", 1)
    with pytest.raises(NotFoundError, match="does not exist"):
        metrics.add("owner", 1, "none", {})
    with pytest.raises(InvalidArgumentError):
        metrics.declare("owner", "", "", 0)
