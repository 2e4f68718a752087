"""Expired resources as the pool's own calls meet them, without any background thread (P53, P54, P59)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool import PoolTimeoutError, _acquire
from tests.helpers.clocks import Clock, fill
from tests.helpers.invariants import assert_quiet
from tests.helpers.programs import printed_by
from tests.helpers.takes import ACQUIRES, take

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


# -- met by an acquire ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["idle_timeout", "max_lifetime"])
@pytest.mark.parametrize("way", ACQUIRES)
def test_expired_ones_are_not_handed_out(  # noqa: PLR0917 - fixtures
    make_pool: MakePool, factory: Factory, clock: Clock, recorder: Recorder, limit: str, way: str
) -> None:
    """P59: without any thread, an acquire destroys what has expired and gets what hasn't, here a new one."""
    pool = make_pool(max_size=3, observer=recorder, **{limit: 60})
    old = fill(pool, 3)
    clock.advance(60)
    thing, give_back = take(pool, way)
    assert thing.number == 4
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3]
    assert not any(one.alive for one in old)
    reason = "idle" if limit == "idle_timeout" else "lifetime"
    assert recorder.details("destroyed")[:3] == [reason] * 3
    assert pool.stats().destroyed_for[reason] == 3
    assert pool.stats().timeouts == 0
    give_back()
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("limit", ["idle_timeout", "max_lifetime"])
def test_a_young_one_behind_old_ones(make_pool: MakePool, factory: Factory, clock: Clock, limit: str) -> None:
    """P59: an acquire that meets an expired one goes on to a younger one instead of making one."""
    pool = make_pool(max_size=3, lifetime_jitter=0, **{limit: 60})
    first = pool.lease("A")
    clock.advance(40)
    second = pool.lease("A")
    if limit == "idle_timeout":
        second.release()
        clock.advance(40)
        first.release()
        pool.lease("A").release()  # the most recently used lies on top
        clock.advance(20)
        assert pool.reap() == 1
        expected = 1
    else:
        second.release()
        first.release()  # on top, and the older one
        clock.advance(20)
        expected = 2
    with pool.lease("A") as thing:
        assert thing.number == expected
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.created, stats.destroyed) == (2, 1)


def test_several_of_which_some_are_old(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P59: lease_many never gets an expired one: all that are destroyed, and what is missing is made."""
    pool = make_pool(max_size=4, idle_timeout=60)
    old = [pool.lease("A"), pool.lease("A")]
    young = pool.lease("A")
    for lease in old:
        lease.release()
    clock.advance(30)
    young.release()
    clock.advance(30)
    with pool.lease_many(4, "A") as things:
        assert sorted(thing.number for thing in things) == [3, 4, 5, 6]
        assert all(thing.alive for thing in things)
    assert sorted(factory.numbers_destroyed()) == [1, 2]
    stats = assert_quiet(pool, keys="A", leased=0, idle=4)
    assert stats.destroyed_for["idle"] == 2


def test_one_deadline_over_all(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """Destroying expired ones is part of the acquire: after its deadline no create is begun."""
    pool = make_pool(max_size=3, idle_timeout=60)
    fill(pool, 3)
    clock.advance(60)
    factory.before["destroy"] = lambda key, thing: clock.advance(2)
    with pytest.raises(PoolTimeoutError):
        pool.lease("A", timeout=5)
    assert factory.calls["create"] == 3
    assert pool.stats().timeouts == 1
    factory.before.clear()
    with pool.lease("A", timeout=5):
        pass
    assert_quiet(pool, leased=0, idle=1)


def test_in_time_in_spite_of_old_ones(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """Within the deadline, the acquire that had to destroy expired ones first is served."""
    pool = make_pool(max_size=3, idle_timeout=60)
    fill(pool, 3)
    clock.advance(60)
    factory.before["destroy"] = lambda key, thing: clock.advance(1)
    with pool.lease("A", timeout=5) as thing:
        assert thing.number == 4


# -- with the other limits and hooks --------------------------------------------------------------------


def test_hooks_are_not_asked_about_old_ones(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """What has expired is neither validated when it's met nor reset when it comes back."""
    pool = make_pool(max_lifetime=60, lifetime_jitter=0, validate=factory.validate, reset=factory.reset)
    fill(pool, 1)
    assert (factory.calls["validate"], factory.calls["reset"]) == (0, 1)
    clock.advance(60)
    lease = pool.lease("A")
    assert factory.calls["validate"] == 0
    clock.advance(60)
    lease.release()
    assert factory.calls["reset"] == 1
    assert factory.numbers_destroyed() == [1, 2]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["lifetime"] == 2
    assert stats.destroyed_for["invalid"] == 0


def test_validate_still_has_its_say(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """What has not expired is validated as ever."""
    pool = make_pool(idle_timeout=60, validate=factory.validate)
    first, second = fill(pool, 2)
    second.healthy = False
    clock.advance(59)
    with pool.lease("A") as thing:
        assert thing is first
    assert factory.destroyed == [second]
    assert pool.stats().destroyed_for["invalid"] == 1


def test_surplus_comes_first(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """max_idle is kept at once, whatever the time limits; the least recently used go."""
    pool = make_pool(max_idle=2, idle_timeout=60)
    fill(pool, 4)
    assert factory.numbers_destroyed() == [1, 2]
    assert pool.stats().destroyed_for["surplus"] == 2
    clock.advance(60)
    assert pool.reap() == 2
    assert pool.stats().destroyed_for["idle"] == 2


@pytest.mark.parametrize("end", ["clear", "close", "forget"])
def test_expired_ones_at_the_end(make_pool: MakePool, factory: Factory, clock: Clock, end: str) -> None:
    """clear, close and forget treat what has expired, but was not reaped yet, as they treat all."""
    pool = make_pool(idle_timeout=60)
    fill(pool, 2)
    clock.advance(60)
    if end == "forget":
        assert pool.forget("A") == 2
        assert factory.destroyed == []
    elif end == "clear":
        assert pool.clear() == 2
    else:
        pool.close()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["idle"] == 0
    assert (stats.destroyed, stats.abandoned) == ((0, 2) if end == "forget" else (2, 0))
    assert pool.reap() == 0
    assert factory.calls["destroy"] == (0 if end == "forget" else 2)


def test_a_leased_one_is_forgotten_past_its_lifetime(
    make_pool: MakePool, factory: Factory, clock: Clock
) -> None:
    """A resource whose world is gone isn't destroyed for its age either."""
    pool = make_pool(max_lifetime=60)
    lease = pool.lease("A")
    pool.forget("A")
    clock.advance(100)
    lease.release()
    assert factory.destroyed == []
    assert assert_quiet(pool, leased=0, idle=0).abandoned == 1


def test_too_old_while_it_is_pending(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P54: one that is given back with a `when` isn't destroyed before that has said yes, however old it is."""
    pool = make_pool(max_size=1, max_lifetime=60, lifetime_jitter=0)
    free: list[bool] = []
    lease = pool.lease("A")
    thing = lease.resource
    lease.release(when=lambda: bool(free))
    clock.advance(1000)
    assert pool.reap() == 0
    assert pool.try_lease("A") is None
    assert thing.alive
    assert pool.stats().pending == 1
    free.append(True)
    with pool.lease("A", timeout=0) as other:
        assert other.number == 2
    assert not thing.alive
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.destroyed, stats.destroyed_for["lifetime"]) == (1, 1)


def test_pending_is_not_idle(make_pool: MakePool, clock: Clock) -> None:
    """The time that a resource is pending doesn't count as idle: that begins when it's free."""
    pool = make_pool(max_size=1, idle_timeout=60)
    free: list[bool] = []
    pool.lease("A").release(when=lambda: bool(free))
    clock.advance(1000)
    free.append(True)
    pool.reap()
    assert_quiet(pool, keys="A", leased=0, idle=1)
    clock.advance(59)
    with pool.lease("A") as thing:
        assert thing.number == 1


def test_reap_keeps_the_order(
    make_pool: MakePool, factory: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P53: what reap leaves is handed out in the order it had, the most recently used first, and evicted the other way round."""
    draws = iter([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    monkeypatch.setattr(_acquire, "draw", lambda: next(draws, 0.0))
    pool = make_pool(max_size=8, max_lifetime=100, lifetime_jitter=0.5)
    fill(pool, 8)
    clock.advance(60)
    assert pool.reap() == 4
    assert factory.numbers_destroyed() == [2, 4, 5, 7]
    assert pool.reap() == 0
    leases = [pool.lease("A") for _ in range(4)]
    assert [lease.resource.number for lease in leases] == [8, 6, 3, 1]
    for lease in reversed(leases):
        lease.release()
    for _ in range(6):
        fill(pool, 1, "B")
        pool.lease("B").detach()
    others = [
        pool.lease("B") for _ in range(8)
    ]  # all rooms: the idle ones of A are evicted, in order of their use
    assert factory.numbers_destroyed() == [2, 4, 5, 7, 1, 3, 6, 8]
    for lease in others:
        lease.release()


# -- without a thread -----------------------------------------------------------------------------------


def test_no_thread_unless_asked_for() -> None:
    """P59: a pool with any limits but those on time, and all its calls, start no thread; nor do time limits without a resource."""
    lines = printed_by(
        """
import os, threading
import respool
from respool import PoolLimits, ResourcePool

def threads():
    while threading.active_count() != len(os.listdir("/proc/self/task")):
        os.sched_yield()  # one that has started another may not have ended quite yet
    return threading.active_count()

limits = PoolLimits(max_size=4, max_per_key=2, max_idle=2, max_cost=9, max_waiters=1)
with ResourcePool(lambda key: object(), lambda key, thing: None, lambda key, thing: True, reset=lambda key, thing: None,
                  cost=lambda key: 1, limits=limits, track_leases=True) as pool:
    pool.prefill(1, "A")
    for key in "ABCABC":
        with pool.lease(key), pool.lease(key, timeout=1):
            pass
    with pool.lease_many(2, "D"):
        pool.try_lease("E").release()
    busy = [1]
    pool.lease("A").release(when=lambda: not busy)
    pool.reap()
    busy.clear()
    pool.clear()
    pool.adopt(object(), "Z")
    pool.resize(PoolLimits(max_size=9))
    pool.clear()
    print(threads())
with ResourcePool(lambda key: object(), limits=PoolLimits(idle_timeout=9, max_lifetime=9), destroy_in="background") as pool:
    pool.stats(), pool.reap(), pool.clear(), pool.bind("A")
    print(threads())
    with pool.lease("A"):
        print(threads())
"""
    )
    assert lines == ["1", "1", "3"]
