"""The Redis plug-in of the response cache: answers shared by several servers, kept over restarts.

Settings as in Triton's: host, port, user or username, password, db, and some more; user and
password may come from TRITONCACHE_REDIS_USERNAME and TRITONCACHE_REDIS_PASSWORD. Called by the
threads of a `StoreCache`. This is the one module of the core that knows Redis; it is imported when
--cache-config names it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from serving.cache.store import CacheStore
from serving.errors import InvalidArgumentError

_PREFIX = b"conch:answer:"
_USER, _PASSWORD = "TRITONCACHE_REDIS_USERNAME", "TRITONCACHE_REDIS_PASSWORD"
_KNOWN = (
    "host, port, unix_socket, user, password, db, tls_enabled, cacert, timeout_ms, pool_size, "
    "ttl_secs"
)


class RedisStore(CacheStore):
    def __init__(self, settings: Mapping[str, str]) -> None:
        given = _Settings(settings)
        self.timeout_s = given.number("timeout_ms", 100, low=1, high=60_000) / 1000
        self.thread_count = given.number("pool_size", 4, low=1, high=64)
        ttl_secs = given.number("ttl_secs", 0, high=10**9)
        self._ttl_secs = ttl_secs or None
        self._client = redis.Redis(
            **given.place(),
            db=given.number("db", 0, high=65535),
            username=given.text("user", "username") or os.environ.get(_USER),
            password=given.text("password") or os.environ.get(_PASSWORD),
            # The thread must not hang longer than anybody waits for it.
            socket_timeout=self.timeout_s,
            socket_connect_timeout=self.timeout_s,
            max_connections=self.thread_count,
            retry=Retry(NoBackoff(), 0),
            **given.tls(),
        )
        given.refuse_unknown()

    def __repr__(self) -> str:
        return f"<RedisStore timeout={self.timeout_s:g} s threads={self.thread_count}>"

    def get(self, key: bytes) -> bytes | None:
        (value,) = self.get_many([key])
        return value

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        values = self._client.mget([_PREFIX + key for key in keys])
        return cast(list[bytes | None], values)  # nothing is decoded

    def put(self, key: bytes, value: bytes) -> None:
        self._client.set(_PREFIX + key, value, ex=self._ttl_secs)

    def close(self) -> None:
        self._client.close()


class _Settings:
    """Reads the values of --cache-config=redis,...; what nobody has asked for is unknown."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._left = dict(settings)

    def text(self, *names: str) -> str:
        values = [self._left.pop(name) for name in names if name in self._left]
        return values[0].strip() if values else ""

    def number(self, name: str, default: int, *, low: int = 0, high: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise self._wrong(name, text, f"a whole number from {low} to {high}")
        if not low <= int(text) <= high:
            raise self._wrong(name, text, f"from {low} to {high}")
        return int(text)

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "1", "false", "0"):
            raise self._wrong(name, text, "true or false")
        return text in ("true", "1")

    def place(self) -> dict[str, Any]:
        path = self.text("unix_socket")
        host, port = self.text("host"), self.number("port", 6379, low=1, high=65535)
        if path and host:
            raise InvalidArgumentError(
                "the response cache 'redis' has both host and unix_socket; give one of them"
            )
        if path:
            return {"unix_socket_path": path}
        if not host:
            raise InvalidArgumentError(
                "the response cache 'redis' needs a host, as in "
                "--cache-config=redis,host=127.0.0.1 --cache-config=redis,port=6379"
            )
        return {"host": host, "port": port}

    def tls(self) -> dict[str, Any]:
        is_wanted, authority = self.flag("tls_enabled"), self.text("cacert")
        if not is_wanted:
            return {}
        return {"ssl": True, "ssl_ca_certs": authority or None}

    def refuse_unknown(self) -> None:
        for name in sorted(self._left):
            raise InvalidArgumentError(
                f"the response cache 'redis' has no setting '{name}'; it knows {_KNOWN}"
            )

    @staticmethod
    def _wrong(name: str, text: str, wanted: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the response cache 'redis' has {name}={text}, which must be {wanted}"
        )
