"""A short run of the fuzz; `python -m benchmarks.fuzz` is the long one."""

from __future__ import annotations

import os

import pytest

from benchmarks.fuzz.run import Plan, run

REQUESTS = int(os.environ.get("FUZZ_HTTP_REQUESTS", "4000"))


@pytest.mark.parametrize("is_guarded", [False, True], ids=["plain", "tls-and-restricted"])
def test_mutated_requests_are_answered_and_harm_nobody(is_guarded: bool):
    """No answer blames the server, none is missing; live and a model that nobody attacks answer
    rightly all the while; memory does not grow; nothing is logged with a traceback. All ports: the
    two protocols, those of SageMaker, Vertex AI and OpenAI."""
    requests = REQUESTS // 4 if is_guarded else REQUESTS - REQUESTS // 4
    report = run(Plan(requests, connections=6, warm_up=0.5, is_guarded=is_guarded))

    assert not report.found, report.text()
    assert not report.tracebacks, report.text()
    assert report.canary_answers > 2  # one takes longer than hundreds of requests
    assert report.growth < 0.05, report.text()
    assert report.answers["HTTP 200"] > requests // 30, report.text()
    assert report.answers["gRPC OK"] > requests // 20, report.text()
    assert (report.answers["HTTP 403"] > requests // 100) is is_guarded, report.text()
