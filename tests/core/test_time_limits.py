"""idle_timeout, max_lifetime, lifetime_jitter: what they mean, by a clock that the test sets (P52 to P55).

No background thread here: what is told holds for acquires, releases and `reap()` by themselves.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

import pytest

from respool import PoolLimits
from tests.helpers.clocks import Clock, fill
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.takes import take
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


# -- values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["idle_timeout", "max_lifetime"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-0.0, ValueError),
        (-1, ValueError),
        (math.nan, ValueError),
        (-math.inf, ValueError),
        (True, TypeError),
        (False, TypeError),
        ("10", TypeError),
        (1j, TypeError),
        ([1], TypeError),
    ],
    ids=repr,
)
def test_a_limit_that_makes_no_sense(name: str, value: object, error: type[Exception]) -> None:
    """A time limit is a number of seconds above 0, or None; the message says which limit it was."""
    with pytest.raises(error, match=name):
        PoolLimits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-0.001, ValueError),
        (1.001, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (None, TypeError),
        (True, TypeError),
        ("0.1", TypeError),
    ],
    ids=repr,
)
def test_a_jitter_that_makes_no_sense(value: object, error: type[Exception]) -> None:
    """The jitter is a share, from 0 to 1."""
    with pytest.raises(error, match="lifetime_jitter"):
        PoolLimits(max_lifetime=1, lifetime_jitter=value)  # type: ignore[arg-type]


def test_limits_that_are_none() -> None:
    """Infinity, and what no process lives to see, are no limit; what is left is seconds."""
    limits = PoolLimits(idle_timeout=math.inf, max_lifetime=10**400)
    assert (limits.idle_timeout, limits.max_lifetime) == (None, None)
    limits = PoolLimits(idle_timeout=5, max_lifetime=0.5, lifetime_jitter=1)
    assert (limits.idle_timeout, limits.max_lifetime, limits.lifetime_jitter) == (5, 0.5, 1)
    assert "idle_timeout=5" in str(limits)
    assert "max_lifetime=0.5" in str(limits)


@pytest.mark.parametrize("name", ["idle_timeout", "max_lifetime"])
def test_an_infinite_limit_expires_nothing(make_pool: MakePool, clock: Clock, name: str) -> None:
    """Infinity is None: nothing ever expires."""
    pool = make_pool(**{name: math.inf})
    fill(pool, 1)
    clock.advance(1e12)
    assert pool.reap() == 0
    with pool.lease("A") as thing:
        assert thing.number == 1


# -- which clock ----------------------------------------------------------------------------------------


def jump_wall_clock(patch: pytest.MonkeyPatch, function: Callable[[], float], by: float) -> None:
    """Make a clock of the time module go wrong, under all names that the package may have for it."""

    def jumped() -> float:
        return function() + by

    for module in [time, *(sys.modules[name] for name in list(sys.modules) if name.startswith("respool"))]:
        for name, value in list(vars(module).items()):
            if value is function:
                patch.setattr(module, name, jumped)


def test_the_wall_clock_jumps(make_pool: MakePool, clock: Clock) -> None:
    """P52: a wall clock that jumps, an hour ahead or back, expires nothing; that the monotonic one goes on does."""
    pool = make_pool(idle_timeout=60, max_lifetime=120, lifetime_jitter=0)
    fill(pool, 3)
    real = {name: getattr(time, name) for name in ("time", "time_ns")}
    for jump in (3600, -3600):
        with pytest.MonkeyPatch.context() as patch:
            for name, function in real.items():
                jump_wall_clock(patch, function, jump if name == "time" else jump * 10**9)
            assert abs(time.time() - real["time"]()) > 3000
            assert pool.reap() == 0
            with pool.lease("A") as thing:
                assert thing.number == 3
    stats = assert_quiet(pool, keys="A", leased=0, idle=3)
    assert (stats.created, stats.destroyed) == (3, 0)
    clock.advance(3600)
    assert pool.reap() == 3


# -- idle too long --------------------------------------------------------------------------------------


def test_idle_ones_age(make_pool: MakePool, factory: Factory, clock: Clock, recorder: Recorder) -> None:
    """P53: with the load down from ten to one, the warm one goes on, and the other nine age out, with their reason."""
    pool = make_pool(max_size=10, idle_timeout=60, observer=recorder)
    things = fill(pool, 10)
    for _ in range(6):
        clock.advance(10)
        with pool.lease("A") as thing:
            assert thing is things[9]
    assert pool.reap() == 9
    assert factory.destroyed == things[:9]
    assert recorder.details("destroyed") == ["idle"] * 9
    for _ in range(6):
        clock.advance(59)
        with pool.lease("A") as thing:
            assert thing is things[9]
        assert pool.reap() == 0
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.created, stats.destroyed_for["idle"], stats.destroyed_for["lifetime"]) == (10, 9, 0)


@pytest.mark.parametrize("before", [False, True], ids=["at the limit", "before it"])
def test_the_moment_of_the_idle_limit(make_pool: MakePool, clock: Clock, before: bool) -> None:  # noqa: FBT001
    """Idle for exactly as long as allowed is too long, any less isn't; the count begins when it's given back."""
    pool = make_pool(idle_timeout=64)
    lease = pool.lease("A")
    clock.advance(1000)  # not idle meanwhile
    lease.release()
    clock.advance(63.5 if before else 64)
    with pool.lease("A") as thing:
        assert thing.number == (1 if before else 2)


def test_a_failed_acquire_does_not_make_it_younger(
    make_pool: MakePool, factory: Factory, clock: Clock
) -> None:
    """A resource that was taken by an acquire which failed before its caller had it has been idle all the time."""
    pool = make_pool(max_size=2, idle_timeout=60)
    fill(pool, 1)
    clock.advance(40)
    factory.errors["create"] = [OSError("second")]
    with pytest.raises(OSError, match="second"):
        pool.lease_many(2, "A")
    assert_quiet(pool, keys="A", leased=0, idle=1)
    clock.advance(30)
    assert pool.reap() == 1


# -- too old --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["lease", "acquire", "bound lease", "bound acquire", "lease_many"])
def test_a_leased_one_is_left_alone(
    make_pool: MakePool, factory: Factory, clock: Clock, recorder: Recorder, way: str
) -> None:
    """P54: past its lifetime in use it's not touched; it's destroyed when it's given back, and the room is free."""
    pool = make_pool(max_size=1, max_lifetime=60, lifetime_jitter=0, observer=recorder)
    thing, give_back = take(pool, way)
    clock.advance(1000)
    assert pool.reap() == 0
    assert pool.stats().leased == 1
    assert thing.alive
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        give_back()
        assert not thing.alive
        woken(waiting).release()
    assert recorder.details("destroyed") == ["lifetime"]
    stats = assert_quiet(pool, keys="B", leased=0, idle=1)
    assert stats.destroyed_for["lifetime"] == stats.destroyed == 1


def test_a_lifetime_counts_use_and_rest(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P54: a life goes on whether the resource is used or not; one that is just within it is kept."""
    pool = make_pool(max_lifetime=64, lifetime_jitter=0)
    for _ in range(9):
        with pool.lease("A") as thing:
            assert thing.number == 1
            clock.advance(7)
    clock.advance(0.5)
    with pool.lease("A") as thing:
        assert thing.number == 1
    clock.advance(0.5)
    assert pool.reap() == 1
    assert factory.numbers_destroyed() == [1]
    with pool.lease("A") as thing:
        assert thing.number == 2


def test_a_life_begins_when_create_has_ended(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """The time that create took isn't part of the life."""
    factory.before["create"] = lambda key: clock.advance(1000)
    pool = make_pool(idle_timeout=60, max_lifetime=60, lifetime_jitter=0)
    fill(pool, 1)
    clock.advance(59)
    with pool.lease("A") as thing:
        assert thing.number == 1


@pytest.mark.parametrize("how", ["adopt", "prefill"])
def test_others_that_come_in_age_too(make_pool: MakePool, factory: Factory, clock: Clock, how: str) -> None:
    """What was adopted or made in advance ages like any other, from then on."""
    pool = make_pool(idle_timeout=60, max_lifetime=100, lifetime_jitter=0)
    clock.advance(500)
    if how == "adopt":
        pool.adopt(factory.create("A"), "A")
    else:
        assert pool.prefill(1, "A") == 1
    clock.advance(59)
    assert pool.reap() == 0
    pool.lease("A").release()
    clock.advance(40)
    assert pool.reap() == 0
    clock.advance(1)
    assert pool.reap() == 1
    assert pool.stats().destroyed_for["lifetime"] == 1


def test_the_reason_that_weighs_more(make_pool: MakePool, clock: Clock) -> None:
    """One that is too old and idle for too long is destroyed once, for its age."""
    pool = make_pool(idle_timeout=10, max_lifetime=20, lifetime_jitter=0)
    fill(pool, 2)
    clock.advance(20)
    assert pool.reap() == 2
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed_for["lifetime"], stats.destroyed_for["idle"]) == (2, 0)


# -- jitter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_lives_are_spread(make_pool: MakePool, clock: Clock, jitter: float) -> None:
    """P55: what was made in one instant doesn't end in one: lives lie in [1 - jitter, 1] x max_lifetime, all over it."""
    pool = make_pool(max_lifetime=1000, lifetime_jitter=jitter)
    count, parts = 400, 20
    fill(pool, count)
    clock.advance(1000 * (1 - jitter) - (0 if jitter == 1 else 0.001))
    assert pool.reap() <= (1 if jitter == 1 else 0)
    ended = []
    for _ in range(parts):
        clock.advance(1000 * jitter / parts)
        ended.append(pool.reap())
        assert pool.reap() == 0
    clock.advance(0.01)
    ended[-1] += pool.reap()
    assert count - 1 <= sum(ended) <= count
    # 20 are to be expected in each part; 0, or more than 80, would come once in some 10^8 runs.
    assert all(0 < part < 80 for part in ended)


def test_a_limit_is_drawn_once(make_pool: MakePool, clock: Clock) -> None:
    """P55: looking again and again doesn't draw again: who was within its life stays so until time goes on."""
    pool = make_pool(max_lifetime=100, lifetime_jitter=1.0)
    fill(pool, 100)
    clock.advance(50)
    first = pool.reap()
    assert 0 < first < 100
    assert [pool.reap() for _ in range(50)] == [0] * 50
    for _ in range(50):
        for lease in [pool.lease("A") for _ in range(100 - first)]:
            lease.release()
    stats = assert_quiet(pool, leased=0, idle=100 - first)
    assert stats.destroyed == first


def test_no_jitter(make_pool: MakePool, clock: Clock) -> None:
    """P55: with a jitter of 0 each life is max_lifetime, exactly."""
    pool = make_pool(max_lifetime=64, lifetime_jitter=0)
    fill(pool, 20)
    clock.advance(63.5)
    assert pool.reap() == 0
    clock.advance(0.5)
    assert pool.reap() == 20
