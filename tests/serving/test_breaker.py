"""The circuit breaker, on a fake clock."""

from __future__ import annotations

from serving.breaker import CircuitBreaker
from tests.fakes import FakeClock

SECOND = 1_000_000


def opened(clock: FakeClock) -> CircuitBreaker:
    breaker = CircuitBreaker(clock.now_ns, limit=3)
    for _ in range(3):
        assert breaker.allows()
        breaker.failed()
    return breaker


def test_it_opens_after_failures_in_a_row_only():
    breaker = CircuitBreaker(FakeClock().now_ns, limit=2)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert not breaker.is_open

    breaker.failed()

    assert breaker.is_open
    assert not breaker.allows()


def test_after_a_pause_one_call_finds_out():
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance_us(SECOND - 1)
    assert not breaker.allows()
    clock.advance_us(1)

    assert breaker.allows()
    assert not breaker.allows()
    breaker.succeeded()

    assert breaker.allows()
    assert breaker.allows()


def test_pauses_double_up_to_half_a_minute():
    clock = FakeClock()
    breaker = opened(clock)
    pauses = []
    for _ in range(7):
        waited = 0
        while not breaker.allows():
            clock.advance_us(SECOND)
            waited += 1
        pauses.append(waited)
        breaker.failed()

    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_late_failures_make_no_pause_longer():
    clock = FakeClock()
    breaker = opened(clock)
    for _ in range(10):
        breaker.failed()
    clock.advance_us(SECOND)

    assert breaker.allows()
