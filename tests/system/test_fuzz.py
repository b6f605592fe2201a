"""A short run of the fuzz; `python -m benchmarks.fuzz` is the long one."""

from __future__ import annotations

import os

from benchmarks.fuzz.run import Plan, run

REQUESTS = int(os.environ.get("FUZZ_HTTP_REQUESTS", "4000"))


def test_mutated_requests_are_answered_and_harm_nobody():
    """No answer blames the server, none is missing; live and a model that nobody attacks answer
    rightly all the while; memory does not grow; nothing is logged with a traceback."""
    report = run(Plan(requests=REQUESTS, connections=6, warm_up=0.5))

    assert not report.found, report.text()
    assert not report.tracebacks, report.text()
    assert report.canary_answers > 5
    assert report.growth < 0.05, report.text()
    assert report.answers["HTTP 200"] > REQUESTS // 30, report.text()
    assert report.answers["gRPC OK"] > REQUESTS // 20, report.text()
