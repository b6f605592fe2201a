"""Resources and turns between instances of several models, on a fake clock (SCH-110..113)."""

from __future__ import annotations

import pytest

from serving.config.scheduling import RateLimit, Resource
from serving.errors import InvalidArgumentError
from serving.rate_limiter import Claim, RateLimiter, limits_of, parse_mode, parse_resource
from tests.fakes import FakeClock
from tests.serving.loading import config_of


class Limited:
    """A limiter, and instances that always have work."""

    def __init__(self, limits: dict[tuple[str, int | None], int] | None = None) -> None:
        self.clock = FakeClock()
        self.limiter = RateLimiter(self.clock, limits)
        self.started: list[str] = []

    def instance(
        self, name: str, needs: str, *, priority: int = 1, device: int = 0, busy: bool = True
    ) -> Claim:
        """`needs` as "r=2 g*=1", a star for a global resource."""
        resources = []
        for item in needs.split():
            resource, _, count = item.partition("=")
            resources.append(Resource(resource.rstrip("*"), resource.endswith("*"), int(count)))
        limit = RateLimit(tuple(resources), priority)
        claim = self.limiter.join(config_of(f'name: "{name}"'), f"{name}_0", limit, device)
        assert claim is not None
        claim.on_turn = lambda: self.start(claim) if busy else None
        return claim

    def start(self, claim: Claim) -> bool:
        if not self.limiter.start(claim):
            return False
        self.started.append(claim.model)
        return True

    def finish(self, claim: Claim, *, again: bool = False) -> None:
        self.limiter.finished(claim)
        if again:
            self.start(claim)
        self.clock.advance_us(0)


def test_an_instance_starts_only_when_all_its_resources_are_free():
    """SCH-111."""
    limited = Limited({("r", None): 4, ("s", None): 1})
    first, second, third = (limited.instance(name, "r=2") for name in "abc")
    fourth = limited.instance("d", "r=1 s=1")

    assert [limited.start(item) for item in (first, second, third, fourth)] == [True, True] + [
        False
    ] * 2

    limited.finish(first)

    assert limited.started == ["a", "b", "c"]
    limited.finish(second)
    assert limited.started == ["a", "b", "c", "d"]


def test_a_resource_is_as_large_as_the_largest_demand():
    """SCH-111: the default pool, over all instances that are there; REP-095: it follows them."""
    limited = Limited()
    small = limited.instance("small", "r=1")
    large = limited.instance("large", "r=3")

    assert [(item.name, item.capacity) for item in limited.limiter.resources()] == [("r", 3)]
    assert limited.start(small)
    assert not limited.start(large)

    limited.finish(small)
    assert limited.started == ["small", "large"]
    limited.limiter.leave(large)

    assert [(item.capacity, item.used) for item in limited.limiter.resources()] == [(1, 0)]


def test_resources_count_for_each_device_and_global_ones_for_all():
    """SCH-111."""
    limited = Limited()
    here, there = (limited.instance(f"d{gpu}", "r=1", device=gpu) for gpu in (0, 1))
    one, other = (limited.instance(f"g{gpu}", "g*=1", device=gpu) for gpu in (0, 1))

    assert limited.start(here)
    assert limited.start(there)
    assert limited.start(one)
    assert not limited.start(other)


def test_an_explicit_count_is_for_one_device_or_for_each():
    """SCH-112."""
    limited = Limited({("r", None): 1, ("r", 1): 2})
    claims = [limited.instance(f"m{number}", "R=1", device=number // 2) for number in range(4)]

    assert [limited.start(claim) for claim in claims] == [True, False, True, True]


def test_a_demand_above_an_explicit_count_is_refused_at_load():
    """SCH-112, VAL-59, REP-095."""
    limiter = RateLimiter(FakeClock(), {("r1", None): 3})
    config = config_of(
        'name: "m" instance_group { rate_limiter { resources { name: "R1" count: 4 } } }'
    )

    with pytest.raises(InvalidArgumentError, match="limited to 3.*minimum required count is 4"):
        limiter.check(config)

    config.instance_group[0].rate_limiter.resources[0].count = 3
    limiter.check(config)


def test_a_resource_has_one_scope_in_all_loaded_models():
    """SCH-111, VAL-58."""
    limited = Limited()
    config = config_of(
        'name: "a" instance_group { rate_limiter { resources { name: "r" count: 1 } } }'
    )
    claim = limited.limiter.join(config, "a_0", RateLimit((Resource("r", False, 1),)), 0)
    other = config_of(
        'name: "b" instance_group { rate_limiter { resources { name: "R" global: true } } }'
    )

    with pytest.raises(InvalidArgumentError, match="both global and device-specific"):
        limited.limiter.check(other)

    assert claim is not None
    limited.limiter.leave(claim)
    limited.limiter.check(other)


def test_priority_two_gets_half_the_turns_of_one():
    """SCH-113: the weight is executions x priority, and the lowest is next."""
    limited = Limited()
    often = limited.instance("a", "r=1")
    seldom = limited.instance("b", "r=1", priority=2)
    limited.start(often)
    limited.start(seldom)
    for _ in range(30):
        running = often if often.is_running else seldom
        limited.finish(running, again=True)

    assert "aab" * 8 in "".join(limited.started)


def test_equal_weights_take_turns_in_the_order_of_waiting():
    """SCH-113."""
    limited = Limited()
    claims = [limited.instance(name, "r=1") for name in "abc"]
    for claim in claims:
        limited.start(claim)
    for _ in range(6):
        limited.finish(next(item for item in claims if item.is_running), again=True)

    assert "".join(limited.started) == "abcabca"


def test_small_demands_do_not_starve_a_large_one():
    """SCH-113: nobody of a higher weight is let past."""
    limited = Limited({("r", None): 2})
    small, other, large = (
        limited.instance("s", "r=1"),
        limited.instance("t", "r=1"),
        limited.instance("L", "r=2"),
    )
    limited.start(small)
    limited.start(other)
    assert not limited.start(large)

    limited.finish(small, again=True)
    assert limited.started == ["s", "t"]
    limited.finish(other, again=True)

    assert limited.started == ["s", "t", "L"]


def test_who_waits_holds_up_only_those_that_need_the_same_resource():
    limited = Limited()
    owner, waiting = limited.instance("a", "r=1"), limited.instance("b", "r=1")
    limited.start(owner)
    assert not limited.start(waiting)

    assert limited.start(limited.instance("c", "s=1"))


def test_a_model_that_has_nothing_to_do_lets_its_turn_pass():
    """Across models: freed resources wake the one whose turn it is, and then the next."""
    limited = Limited()
    owner = limited.instance("a", "r=1")
    idle = limited.instance("b", "r=1", busy=False)
    last = limited.instance("c", "r=1")
    limited.start(owner)
    limited.start(idle)
    limited.start(last)

    limited.finish(owner)

    assert limited.started == ["a", "c"]
    assert not idle.is_waiting


def test_who_was_idle_gets_no_endless_row_of_turns():
    limited = Limited()
    old = limited.instance("a", "r=1")
    for _ in range(1000):
        limited.start(old)
        limited.limiter.finished(old)
    limited.start(old)
    new = limited.instance("b", "r=1")
    limited.start(new)
    limited.started.clear()
    for _ in range(40):
        limited.finish(old if old.is_running else new, again=True)

    assert 15 <= limited.started.index("a") <= 20


def test_an_instance_that_goes_gives_back_what_it_has():
    limited = Limited()
    owner, waiting = limited.instance("a", "r=1"), limited.instance("b", "r=1")
    limited.start(owner)
    limited.start(waiting)

    limited.limiter.leave(owner)
    limited.clock.advance_us(0)

    assert limited.started == ["a", "b"]


def test_it_says_how_long_and_for_what_somebody_waits():
    limited = Limited()
    owner, waiting = limited.instance("a", "g*=1"), limited.instance("b", "g*=1")
    limited.start(owner)
    limited.start(waiting)

    assert limited.limiter.why_waiting(waiting) == (
        "instance 'b_0' waits for 1 of resource 'g': 1 of 1 are in use by a"
    )
    limited.clock.advance_us(250)
    limited.finish(owner)
    assert (waiting.waits.count, waiting.waits.total_ns) == (1, 250_000)
    assert limited.limiter.why_waiting(waiting) == ""


def test_an_instance_without_demands_never_waits():
    limiter = RateLimiter(FakeClock())
    nothing = RateLimit((Resource("r", False, 0),))

    assert limiter.join(config_of('name: "m"'), "m_0", RateLimit(), 0) is None
    assert limiter.join(config_of('name: "m"'), "m_0", nothing, 0) is None


def test_resources_of_the_command_line():
    """SCH-112."""
    assert parse_resource("R1:4") == (("r1", None), 4)
    assert parse_resource("r1:4:0") == (("r1", 0), 4)
    assert limits_of(
        [parse_resource("R1:4"), parse_resource("r1:4"), parse_resource("r1:2:0")]
    ) == {
        ("r1", None): 4,
        ("r1", 0): 2,
    }
    for text in ("R1", "R1:x", "R1:-1", ":2", "R1:2:x", "R1:2:0:1", "R1:²", ""):
        with pytest.raises(InvalidArgumentError, match="expects <name>:<count>"):
            parse_resource(text)
    with pytest.raises(InvalidArgumentError, match="given as 4 and as 3"):
        limits_of([parse_resource("R1:4"), parse_resource("r1:3")])


def test_modes():
    """SCH-110."""
    assert not parse_mode("off")
    assert parse_mode("execution_count")
    assert parse_mode("EXECUTION_COUNT")
    with pytest.raises(InvalidArgumentError, match="off or execution_count"):
        parse_mode("on")
