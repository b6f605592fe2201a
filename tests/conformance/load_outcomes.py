"""Load every model of the repositories into a running server, one after the other, by its own name.

    python -m tests.conformance.load_outcomes 127.0.0.1:8000 > tests/conformance/data/loads.json

prints model -> "loads" or "refused". A real Triton for the recording is started on `REPOSITORIES`
with `OPTIONS`; nothing is asked of the models that load.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

DATA = Path(__file__).parent / "data"
REPOSITORIES = (DATA / "models", DATA / "models_bad", DATA / "ensembles")
"""Good models; models that should be refused; ensembles of the good ones, and bad ensembles."""
OPTIONS = (
    "--model-control-mode=explicit",
    "--exit-on-error=false",
    "--strict-readiness=false",
    "--cache-config=local,size=16777216",
    "--rate-limit=execution_count",
)
_TIMEOUT_S = 120.0
_AT_ONCE = 4


def names() -> list[str]:
    """In an order in which no model is a part of an earlier one."""
    found = [path.name for root in REPOSITORIES for path in sorted(root.iterdir())]
    return sorted(found, key=lambda name: name.startswith("e"))


def load_all(address: str) -> dict[str, str]:
    """Model -> "loads", or "refused: " and the server's sentence."""
    with httpx.Client(base_url=f"http://{address}", timeout=_TIMEOUT_S) as client:

        def load(name: str) -> str:
            answer = client.post(f"/v2/repository/models/{name}/load", json={})
            if answer.status_code == 200:
                return "loads"
            return f"refused: {answer.json()['error'].strip()}"

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(names(), pool.map(load, names()), strict=True))


def main() -> int:
    outcomes = {name: told.partition(":")[0] for name, told in load_all(sys.argv[1]).items()}
    json.dump(outcomes, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
