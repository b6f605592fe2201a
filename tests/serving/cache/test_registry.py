"""Which cache --cache-config gets: built in, installed, or a file (SCH-120, SCH-122)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.cache.base import ResponseCache
from serving.cache.local import LocalCache
from serving.cache.registry import open_cache
from serving.cache.settings import combined, parse_setting
from serving.errors import InvalidArgumentError
from serving.options import CacheOptions
from tests.fakes import FakeClock

CUSTOM = """
from serving.cache.store import CacheStore

class Cache(CacheStore):
    def __init__(self, settings):
        self.values = {}
        self.settings = settings

    def get(self, key):
        return self.values.get(key)

    def put(self, key, value):
        self.values[key] = value
"""


async def opened(name: str, directory: Path | None = None, **settings: str) -> ResponseCache:
    options = CacheOptions(name, settings, directory)
    cache = open_cache(options, asyncio.get_running_loop(), FakeClock())
    assert cache is not None
    cache.close()
    return cache


def custom(directory: Path, text: str = CUSTOM, name: str = "mine") -> Path:
    (directory / name).mkdir()
    (directory / name / "cache.py").write_text(text)
    return directory


async def test_no_config_is_no_cache():
    assert open_cache(None, asyncio.get_running_loop(), FakeClock()) is None


async def test_the_local_cache_is_built_in():
    cache = await opened("local", size="1000")

    assert isinstance(cache, LocalCache)
    assert not cache.is_shared
    assert cache.counters.capacity_bytes == 1000


async def test_a_cache_of_ones_own_is_a_file_in_the_cache_directory(tmp_path: Path):
    """SCH-122."""
    cache = await opened("mine", custom(tmp_path), place="here")

    assert cache.is_shared
    assert "StoreCache mine" in repr(cache)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no class Cache in cache.py"),
        ("class Cache:\n    def __init__(self, settings): pass", "not a subclass of .*CacheStore"),
        ("import nothing_such", "could not be started: ModuleNotFoundError"),
        ("def broken(:", "could not be started: SyntaxError"),
        (CUSTOM.replace("self.values = {}", "1 / 0"), "could not be started: ZeroDivisionError"),
    ],
)
async def test_a_cache_that_cannot_start_is_told(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidArgumentError, match=message):
        await opened("mine", custom(tmp_path, text))


async def test_an_unknown_cache_is_told(tmp_path: Path):
    with pytest.raises(InvalidArgumentError, match=r"cache 'mine': built in are local, redis"):
        await opened("mine")
    with pytest.raises(InvalidArgumentError, match=r"has no mine/cache.py"):
        await opened("mine", tmp_path)
    with pytest.raises(InvalidArgumentError, match="unable to find"):
        await opened("..", custom(tmp_path))


def test_settings_of_one_cache_add_up():
    """SCH-120."""
    given = [parse_setting(text) for text in ("redis,host=h", "redis,port=1", "redis,host=i")]

    assert combined(given) == CacheOptions("redis", {"host": "i", "port": "1"})
    assert combined([]) is None


def test_only_one_cache_is_supported():
    """SCH-120."""
    with pytest.raises(
        InvalidArgumentError, match="settings of 2 caches: local, redis; only a sin"
    ):
        combined([parse_setting("local,size=1"), parse_setting("redis,host=h")])


@pytest.mark.parametrize("text", ["local", "local,size", "local,size=", "size=1", ",size=1", ""])
def test_a_setting_has_a_cache_a_key_and_a_value(text):
    with pytest.raises(InvalidArgumentError, match="expects <cache>,<key>=<value>"):
        parse_setting(text)
