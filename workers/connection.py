"""How this package connects to Redis: short timeouts, one quick second try, no long back-off.

The second try is for a connection that was closed meanwhile. A Redis that hangs gets none: it would
but double the wait.

The library's own back-off would hold a page or a heartbeat for many seconds; callers here have
their own idea of when to try again.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_S = 3.0


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )


def connect_async(url: str, *, block_s: float) -> Any:
    """For blocking reads of up to `block_s` on the running event loop."""
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=block_s + TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
    )
