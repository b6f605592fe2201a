"""The cache in memory: a byte budget, least recently used first out (SCH-122)."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from serving.cache import local
from serving.cache.base import CachedAnswer
from serving.cache.local import ENTRY_OVERHEAD, LocalCache
from serving.errors import InvalidArgumentError
from serving.response import InferenceResponse
from tests.serving.cache.answers import answer, output


def look_up(cache: LocalCache, key: bytes) -> CachedAnswer | None:
    found: list[CachedAnswer | None] = []
    cache.look_up(key, found.append)
    (result,) = found
    return result


def test_what_was_inserted_is_found():
    cache = LocalCache(10_000)
    kept = answer()
    cache.insert(b"k", kept)

    assert look_up(cache, b"k") is kept
    assert look_up(cache, b"other") is None
    counters = cache.counters
    assert (counters.hits, counters.misses, counters.entries) == (1, 1, 1)
    assert counters.used_bytes == 4 + ENTRY_OVERHEAD


def test_the_least_recently_used_goes_when_the_bytes_are_used_up():
    """SCH-122."""
    cache = LocalCache(3 * (100 + ENTRY_OVERHEAD))
    for key in (b"a", b"b", b"c"):
        cache.insert(key, answer(100))
    look_up(cache, b"a")

    cache.insert(b"d", answer(100))

    assert [key for key in (b"a", b"b", b"c", b"d") if look_up(cache, key)] == [b"a", b"c", b"d"]
    assert cache.counters.evictions == 1
    assert cache.counters.used_bytes == 3 * (100 + ENTRY_OVERHEAD)


def test_one_large_answer_may_drive_out_several():
    cache = LocalCache(4 * (100 + ENTRY_OVERHEAD))
    for number in range(4):
        cache.insert(bytes([number]), answer(100))

    cache.insert(b"large", answer(1100))

    assert cache.counters.used_bytes <= cache.counters.capacity_bytes
    assert look_up(cache, b"large") is not None


def test_what_is_larger_than_the_cache_is_not_kept_and_told_once(caplog):
    """SCH-123: a failed insertion is logged, and nothing else."""
    cache = LocalCache(1000)
    cache.insert(b"small", answer(10))
    with caplog.at_level(logging.WARNING):
        cache.insert(b"a", answer(1000))
        cache.insert(b"b", answer(1000))

    assert look_up(cache, b"a") is None
    assert look_up(cache, b"small") is not None
    assert len(caplog.records) == 1


def test_a_second_answer_of_the_same_key_changes_nothing():
    cache = LocalCache(10_000)
    first = answer()
    cache.insert(b"k", first)
    cache.insert(b"k", answer(fill=2))

    assert look_up(cache, b"k") is first
    assert cache.counters.used_bytes == 4 + ENTRY_OVERHEAD


def test_a_model_that_is_gone_leaves_nothing_behind():
    cache = LocalCache(10_000)
    cache.insert(b"old-1", answer())
    cache.insert(b"old-2", answer())
    cache.insert(b"new-1", answer())

    cache.forget(b"old")

    assert look_up(cache, b"old-1") is None
    assert look_up(cache, b"new-1") is not None
    assert cache.counters.entries == 1
    assert cache.counters.used_bytes == 4 + ENTRY_OVERHEAD


def test_strings_count_with_what_they_hold():
    text = np.array([b"x" * 1000, b""], np.object_)
    kept = CachedAnswer((output("T", "BYTES", text),))

    assert kept.byte_size == 1000 + text.nbytes


def test_a_copy_shares_no_memory_and_cannot_be_written():
    batch = np.arange(8, dtype=np.float32).reshape(2, 4)
    response = InferenceResponse("m", 1, outputs=[output("OUT", "FP32", batch[:1])])

    kept = CachedAnswer.copy_of(response)
    batch[:] = 0

    assert kept.outputs[0].array.tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="read-only"):
        kept.outputs[0].array[0, 0] = 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs its size in bytes"),
        ({"size": "0"}, "above 0"),
        ({"size": "-5"}, "above 0, not '-5'"),
        ({"size": "12x"}, "above 0, not '12x'"),
        ({"size": "9" * 20}, "above 0"),
        ({"size": "1", "foo": "2"}, "has no setting 'foo'; it knows size"),
    ],
)
def test_settings_that_cannot_be_used_are_told(settings, message):
    """SCH-120."""
    with pytest.raises(InvalidArgumentError, match=message):
        local.make(settings)
