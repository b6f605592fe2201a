"""`python -m benchmarks.fuzz`: mutated HTTP and gRPC requests against a real server.

Exit status 1 if any request got no answer, or one that blames the server; if live, or a model that
nobody attacks, did not answer rightly all the while; if memory has grown by more than 5 % after a
quarter of the requests; or if there is a traceback in the log. `--only N` sends one case again.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.fuzz.run import Plan, run

_MOST_GROWTH = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=8, help="of each protocol")
    parser.add_argument("--guarded", action="store_true", help="with TLS and restricted APIs")
    parser.add_argument("--only", type=int, help="the number of the one case to send")
    options = parser.parse_args()
    report = run(
        Plan(
            options.requests,
            options.seed,
            options.connections,
            with_python=True,
            is_guarded=options.guarded,
            only=options.only,
        )
    )
    print(report.text())
    is_clean = not report.found and not report.tracebacks and report.growth <= _MOST_GROWTH
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
