"""tritonserver's options that this release does not have: refused by name, never ignored.

Data only; `serving.cli` reads it. Source: spec CLI-001..172.
"""

from __future__ import annotations

NOT_YET: frozenset[str] = frozenset(
    [
        "cuda-virtual-address-size",
        "enable-peer-access",
        "min-supported-compute-capability",
        "repoagent-directory",
        "reuse-grpc-port",
        "reuse-http-port",
    ]
)
