"""The metrics page: Triton's families with Triton's labels, and valid text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.cache.base import CacheCounters
from serving.config.scheduling import RateLimit, Resource
from serving.devices import GpuSample
from serving.errors import FailureReason
from serving.instance.turns import Turns
from serving.latencies import Histogram, Summaries
from serving.metrics import render
from serving.metrics_config import MetricsConfig
from serving.rate_limiter import RateLimiter
from serving.scheduling.sequence.lanes import SlotUsage
from serving.stats import ModelStats, StatsSnapshot
from tests.fakes import FakeClock
from tests.serving.loading import config_of
from tests.serving.scheduling.hosts import ManualHost

_LINE = re.compile(
    r"# (HELP|TYPE) \w+ .+|"
    r'\w+(\{\w+="([^"\\\n]|\\["\\n])*"(,\w+="([^"\\\n]|\\["\\n])*")*\})? -?[0-9.]+'
)


@dataclass
class Counters:
    name: str = "m"
    version: int = 2
    namespace: str = ""
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    load_duration_s: float = 1.5
    queued_count: int = 4
    inflight_count: int = 6
    instance_count: int = 2
    slot_usage: SlotUsage | None = None
    is_cached: bool = False
    turns: Turns | None = None
    gpu_uuid: str = ""
    process_bytes: int | None = None
    stats: ModelStats = field(default_factory=ModelStats)

    @property
    def first_response(self) -> Histogram | None:
        return self.stats.first_response

    @property
    def summaries(self) -> Summaries | None:
        return self.stats.summaries

    def snapshot(self) -> StatsSnapshot:
        return self.stats.snapshot()


def busy() -> Counters:
    model = Counters()
    model.stats.record_success(3_000_000, 1_000_000, 500_000, 1_000_000, 500_000, batch_size=3)
    model.stats.record_failure(FailureReason.REJECTED, 2_000_000)
    model.stats.record_execution(3, "full", 500_000, 1_000_000, 500_000)
    return model


def value(page: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    assert found, f"{series} is not in\n{page}"
    return float(found[1])


def test_only_models_with_the_cache_show_hits_and_misses() -> None:
    """MET-020."""
    cached = Counters(is_cached=True)
    cached.stats.record_cache_hit(5_000, 1_000, 3_000)
    cached.stats.record_cache_miss(7_000)

    page = render([cached, Counters(name="o")])

    assert value(page, 'nv_cache_num_hits_per_model{model="m",version="2"}') == 1
    assert value(page, 'nv_cache_num_misses_per_model{model="m",version="2"}') == 1
    assert value(page, 'nv_cache_hit_duration_per_model{model="m",version="2"}') == 3
    assert value(page, 'nv_cache_miss_duration_per_model{model="m",version="2"}') == 7
    assert value(page, 'nv_inference_request_success{model="m",version="2"}') == 1
    assert value(page, 'nv_inference_count{model="m",version="2"}') == 0
    assert 'nv_cache_num_hits_per_model{model="o"' not in page


def test_the_cache_shows_how_full_it_is() -> None:
    counters = CacheCounters(hits=3, misses=5, entries=2, used_bytes=256, capacity_bytes=1024)

    page = render([], cache=counters)

    assert value(page, "nv_cache_num_lookups") == 8
    assert value(page, "nv_cache_num_entries") == 2
    assert value(page, "nv_cache_util") == 0.25
    assert value(page, "conch_cache_open") == 1
    assert "nv_cache" not in render([])


def test_a_model_shows_that_it_waits_for_resources() -> None:
    """SCH-111: why a model waits."""
    limiter = RateLimiter(FakeClock(), {("r", 0): 4})
    turns = Turns(limiter)
    limit = RateLimit((Resource("r", False, 3),))
    for name in ("a", "b"):
        host, claim = ManualHost(name), limiter.join(config_of('name: "m"'), name, limit, 0)
        assert claim is not None
        turns.add(host, claim, lambda: None)
        turns.start(host)

    page = render([Counters(turns=turns)], resources=limiter.resources())

    assert value(page, 'conch_rate_limit_waiting{model="m",version="2"}') == 1
    assert value(page, 'conch_rate_limit_waits_total{model="m",version="2"}') == 0
    assert value(page, 'conch_rate_limit_capacity{resource="r",device="0"}') == 4
    assert value(page, 'conch_rate_limit_used{resource="r",device="0"}') == 3
    assert "waits for 3 of resource 'r' of device 0: 3 of 4 are in use by m" in turns.reason


def test_a_sequence_model_shows_how_full_it_is() -> None:
    page = render(
        [Counters(slot_usage=SlotUsage(slots=8, active=5, backlog=2)), Counters(name="o")]
    )

    assert value(page, 'conch_sequence_slots{model="m",version="2"}') == 8
    assert value(page, 'conch_active_sequences{model="m",version="2"}') == 5
    assert value(page, 'conch_backlog_sequences{model="m",version="2"}') == 2
    assert 'conch_sequence_slots{model="o"' not in page


def test_counters_of_a_model_have_triton_names_and_labels() -> None:
    page = render([busy()])

    labels = 'model="m",version="2"'
    assert value(page, f"nv_inference_request_success{{{labels}}}") == 1
    assert value(page, f'nv_inference_request_failure{{{labels},reason="REJECTED"}}') == 1
    assert value(page, f'nv_inference_request_failure{{{labels},reason="BACKEND"}}') == 0
    assert value(page, f"nv_inference_count{{{labels}}}") == 3
    assert value(page, f"nv_inference_exec_count{{{labels}}}") == 1
    assert value(page, f"nv_inference_pending_request_count{{{labels}}}") == 4
    assert value(page, f"nv_inference_request_duration_us{{{labels}}}") == 5000
    assert value(page, f"nv_inference_queue_duration_us{{{labels}}}") == 1000
    assert value(page, f"nv_inference_compute_infer_duration_us{{{labels}}}") == 1000
    assert value(page, f"nv_model_load_duration_secs{{{labels}}}") == 1.5


def test_all_four_failure_reasons_exist_from_the_start() -> None:
    page = render([Counters()])

    assert set(re.findall(r'reason="(\w+)"', page)) == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}


def test_conch_families_tell_latency_batches_and_queue() -> None:
    page = render([busy()])

    labels = 'model="m",version="2"'
    assert value(page, f"conch_request_latency_us_count{{{labels}}}") == 1
    assert value(page, f"conch_request_latency_us_sum{{{labels}}}") == 3000
    assert value(page, f'conch_request_latency_us_bucket{{{labels},le="+Inf"}}') == 1
    assert value(page, f'conch_batch_size_bucket{{{labels},le="2"}}') == 0
    assert value(page, f'conch_batch_size_bucket{{{labels},le="4"}}') == 1
    assert value(page, f"conch_batch_size_sum{{{labels}}}") == 3
    assert value(page, f'conch_batch_close_total{{{labels},reason="full"}}') == 1
    assert value(page, f"conch_queue_depth{{{labels}}}") == 4


def test_histogram_buckets_never_fall() -> None:
    model = busy()
    for microseconds in (1, 10, 1000, 10**9):
        model.stats.record_success(microseconds * 1000, 0, 0, 0, 0)

    counts = re.findall(r"^conch_request_latency_us_bucket\S+ (\d+)$", render([model]), re.M)

    assert [int(count) for count in counts] == sorted(int(count) for count in counts)
    assert int(counts[-1]) == 5


def test_every_line_is_valid_text_even_with_odd_labels() -> None:
    model = busy()
    model.name = 'a"b\\c\nd'
    model.metric_tags = {"team-x": "é"}
    gpu = GpuSample("GPU-1", 0, 0.5, 10, None, 99.5, 300.0, 7.0)

    lines = render([model, Counters(name="other")], [gpu]).splitlines()

    assert [line for line in lines if not _LINE.fullmatch(line)] == []
    assert any('_team_x="é"' in line for line in lines)


def test_help_and_type_come_once_for_each_family() -> None:
    heads = re.findall(r"^# TYPE (\w+)", render([busy(), Counters(name="n")]), re.MULTILINE)

    assert len(heads) == len(set(heads))


def test_a_gpu_shows_only_what_it_reports() -> None:
    gpu = GpuSample("GPU-1", 0, 0.5, 10, None, None, None, None)

    page = render([], [gpu])

    assert value(page, 'nv_gpu_utilization{gpu_uuid="GPU-1"}') == 0.5
    assert "nv_gpu_memory_total_bytes" not in page


def test_no_models_and_no_gpus_are_an_empty_page() -> None:
    assert render([]) == ""


def test_counter_latencies_can_be_left_out() -> None:
    """MET-010."""
    page = render([busy()], config=MetricsConfig(counter_latencies=False))

    assert "_duration_us" not in page
    assert "nv_cache_num_hits_per_model" not in page
    assert "nv_inference_request_success" in page


def test_the_histogram_of_first_responses_has_its_buckets() -> None:
    """MET-011."""
    model = Counters(stats=ModelStats(first_response=Histogram((100.0, 500.0, 2000.0, 5000.0))))
    for milliseconds in (3, 100, 101, 9000):
        model.stats.first_response.add(milliseconds * 1_000_000)

    name, labels = "nv_inference_first_response_histogram_ms", 'model="m",version="2"'
    page = render([model], config=MetricsConfig(histogram_latencies=True))

    counts = [value(page, f'{name}_bucket{{{labels},le="{le}"}}') for le in (100, 500, 2000, 5000)]
    assert counts == [2, 3, 3, 3]
    assert value(page, f'{name}_bucket{{{labels},le="+Inf"}}') == 4
    assert value(page, f"{name}_sum{{{labels}}}") == 9204
    assert value(page, f"{name}_count{{{labels}}}") == 4
    assert name not in render([model])


def test_summaries_show_quantiles_of_each_stage() -> None:
    """MET-012."""
    model = Counters(stats=ModelStats(summaries=Summaries()))
    for milliseconds in range(1, 101):
        model.stats.record_success(milliseconds * 1_000_000, 7_000, 0, 0, 0)

    labels = 'model="m",version="2"'
    page = render([model, Counters(name="o")], config=MetricsConfig(summary_latencies=True))

    assert value(page, f"nv_inference_request_summary_us_count{{{labels}}}") == 100
    assert value(page, f"nv_inference_request_summary_us_sum{{{labels}}}") == 5_050_000
    median = value(page, f'nv_inference_request_summary_us{{{labels},quantile="0.5"}}')
    assert 50_000 / 1.19 < median < 50_000 * 1.19
    assert value(page, f'nv_inference_queue_summary_us{{{labels},quantile="0.999"}}') <= 7
    assert 'summary_us_count{model="o"' not in page


def test_a_cached_model_has_summaries_of_hits_and_misses() -> None:
    """MET-013; MET-012: and none of whole requests, which would mix the two."""
    cached = Counters(is_cached=True, stats=ModelStats(summaries=Summaries()))
    cached.stats.record_cache_hit(5_000, 1_000, 3_000)

    labels = 'model="m",version="2"'
    page = render([cached], config=MetricsConfig(summary_latencies=True))

    assert value(page, f"nv_cache_hit_summary_per_model_count{{{labels}}}") == 1
    assert value(page, f"nv_cache_hit_summary_per_model_sum{{{labels}}}") == 3
    assert value(page, f"nv_cache_miss_summary_per_model_count{{{labels}}}") == 0
    assert f'nv_cache_miss_summary_per_model{{{labels},quantile="0.5"}} NaN\n' in page
    assert value(page, f"nv_inference_queue_summary_us_count{{{labels}}}") == 1
    assert value(page, f"nv_inference_compute_infer_summary_us_count{{{labels}}}") == 0
    assert "nv_inference_request_summary_us" not in page


@dataclass
class Server:
    resident_bytes: int = 4096
    state_changes: Mapping[str, int] = field(default_factory=lambda: {"READY": 2})


def test_the_page_has_pools_process_and_load_events() -> None:
    """MET-050: nothing is pinned, and dashboards find the pool with the size 0."""
    page = render([Counters(process_bytes=8192)], server=Server())

    assert value(page, "nv_pinned_memory_pool_total_bytes") == 0
    assert value(page, "nv_pinned_memory_pool_used_bytes") == 0
    assert value(page, "conch_server_resident_bytes") == 4096
    assert value(page, 'conch_model_process_bytes{model="m",version="2"}') == 8192
    assert value(page, 'conch_model_state_changes_total{state="READY"}') == 2


def test_the_gpu_of_a_model_is_a_label_of_its_series() -> None:
    page = render([Counters(gpu_uuid="GPU-1")])

    labels = 'model="m",version="2",gpu_uuid="GPU-1"'
    assert value(page, f"nv_inference_request_success{{{labels}}}") == 0


def test_every_figure_of_a_gpu_has_its_family() -> None:
    """MET-030, MET-031."""
    page = render([], [GpuSample("GPU-1", 0, 0.5, 10, 20, 99.5, 300.0, 7.0)])

    figures = {
        "nv_gpu_utilization": 0.5,
        "nv_gpu_memory_used_bytes": 10,
        "nv_gpu_memory_total_bytes": 20,
        "nv_gpu_power_usage": 99.5,
        "nv_gpu_power_limit": 300,
        "nv_energy_consumption": 7,
    }
    assert {name: value(page, f'{name}{{gpu_uuid="GPU-1"}}') for name in figures} == figures
    assert "# TYPE nv_energy_consumption counter" in page
