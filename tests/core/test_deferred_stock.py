"""What clear, forget, resize, limits on idle ones, close, fork and a dropped pool do to what is pending (G8)."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from respool import PoolClosedError, PoolLimits, PoolTimeoutError, ResourcePool
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory
from tests.helpers.threads import Threads, wait_until, wait_until_queued
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from tests.helpers.clocks import Clock
    from tests.helpers.resources import MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


# -- clear, forget -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["all", "key"])
def test_clear(make_pool: MakePool, factory: Factory, which: str) -> None:
    """P65, G8: clear leaves what is pending alone, as what is leased: it's destroyed once it's free, and not handed out."""
    pool = make_pool(max_size=2)
    when, other = When(), When()
    things = hand_in(pool, when) + hand_in(pool, other, key="B")
    assert (pool.clear() if which == "all" else pool.clear("A")) == 0
    assert factory.destroyed == []
    assert pool.stats().pending == 2
    when.free = True
    with pool.lease("A", timeout=5) as thing:
        assert thing not in things
    assert factory.destroyed == [things[0]]
    assert pool.stats().destroyed_for["cleared"] == 1
    other.free = True
    with pool.lease("B", timeout=5) as thing:
        assert (thing is things[1]) == (which == "key")
    assert when.misuse == other.misuse == []
    assert_quiet(pool, leased=0)


def test_cleared_before_it_is_given_back(make_pool: MakePool, factory: Factory) -> None:
    """P65, G8: one that was leased when the pool was cleared, and comes back not yet free, is destroyed once it's free."""
    pool = make_pool(max_size=1)
    lease, when = pool.lease("A"), When()
    pool.clear()
    lease.release(when)
    assert factory.destroyed == []
    when.free = True
    assert pool.reap() >= 0
    assert_quiet(pool, leased=0, idle=0)
    assert pool.stats().destroyed_for["cleared"] == 1


def test_forget(make_pool: MakePool, factory: Factory) -> None:
    """G8: forget abandons what is pending at once, and its `when` is never asked again; their rooms are free."""
    pool = make_pool(max_size=2)
    whens = [When(), When()]
    hand_in(pool, *whens)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        assert pool.forget("A") == 2
        waiting.result().release()
    asked = [when.asked for when in whens]
    pool.reap()
    assert [when.asked for when in whens] == asked
    assert factory.destroyed == []
    stats = assert_quiet(pool, keys="B", leased=0, idle=1)
    assert (stats.pending, stats.abandoned) == (0, 2)


def test_forgotten_before_it_is_given_back(make_pool: MakePool, factory: Factory) -> None:
    """G8: one that was leased when its key was forgotten is abandoned when it comes back, free or not."""
    pool = make_pool(max_size=3)
    leases = [pool.lease("A") for _ in range(3)]
    pool.forget("A")
    for lease, when in zip(leases, (None, When(), When(free=True)), strict=True):
        lease.release(when)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.abandoned, stats.size) == (3, 0)
    assert factory.destroyed == []


@pytest.mark.parametrize("end", ["yes", "no", "raises"])
def test_forget_while_it_is_asked(make_pool: MakePool, factory: Factory, end: str) -> None:
    """G8: whatever a `when` says that is being asked while its key is forgotten, its resource is abandoned."""
    pool = make_pool(max_size=1)
    gate, when = Gate(), When()
    hand_in(pool, when)
    when.before = gate.stop
    with Threads() as threads:
        asking = threads.start(pool.reap)
        gate.wait_arrived(1)
        pool.forget("A")
        when.free = end == "yes"
        if end == "raises":
            when.errors = [ValueError("gone")]
        gate.open()
        asking.result()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.abandoned, stats.size, stats.quarantined) == (1, 0, 0)
    assert factory.destroyed == []
    assert when.asked == 2


# -- limits --------------------------------------------------------------------------------------------------


def test_shrinking(make_pool: MakePool) -> None:
    """P62, G8: pending ones beyond a smaller limit are destroyed as they become free; nobody is served with the surplus."""
    pool = make_pool(max_size=4)
    whens = [When() for _ in range(4)]
    hand_in(pool, *whens)
    pool.resize(PoolLimits(max_size=2))
    assert pool.stats().size == 4
    whens[0].free = whens[1].free = True
    assert pool.try_lease("A") is None
    stats = pool.stats()
    assert (stats.size, stats.pending, stats.destroyed_for["surplus"]) == (2, 2, 2)
    whens[2].free = whens[3].free = True
    with pool.lease_many(2, "A", timeout=5):
        pass
    assert_quiet(pool, leased=0, idle=2)


def test_growing(make_pool: MakePool) -> None:
    """P63, G8: where there's more room, a waiter that has asked in vain so far gets a new one."""
    pool = make_pool(max_size=1)
    when = When()
    hand_in(pool, when)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until(lambda: when.asked > 3, "asking")
        pool.resize(PoolLimits(max_size=2))
        lease = waiting.result()
        assert lease.resource.number == 2
        lease.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.pending == 1


@pytest.mark.parametrize("way", WAYS)
def test_max_idle(make_pool: MakePool, way: str) -> None:
    """P04, G8: what is pending isn't idle; once it's free it is kept, or is one too many, like any other that comes back."""
    pool = make_pool(max_idle=0)
    held, when = hold(pool, way), When()
    held.release(when)
    assert pool.stats().pending == len(held.things)
    when.free = True
    pool.reap()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["surplus"] == len(held.things)


def test_lifetime(make_pool: MakePool, clock: Clock) -> None:
    """P54, G8: one that passes its lifetime while it's pending is left alone until it's free, and destroyed then."""
    pool = make_pool(max_size=1, max_lifetime=100.0)
    when = When()
    (thing,) = hand_in(pool, when)
    clock.advance(200)
    assert pool.reap() == 0
    assert thing.alive
    when.free = True
    pool.reap()
    assert not thing.alive
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed_for["lifetime"], stats.pending) == (1, 0)


# -- the end -------------------------------------------------------------------------------------------------


def test_close_waits_for_what_is_pending(make_pool: MakePool, factory: Factory) -> None:
    """G8, G9: close asks what is pending until it's free, then destroys it; its timeout names what is out still."""
    pool = make_pool(max_size=3)
    whens = [When(), When()]
    hand_in(pool, *whens, key="slow key")
    with pytest.raises(PoolTimeoutError, match="slow key") as caught:
        pool.close(timeout=0.05)
    assert caught.value.pending == 2
    assert factory.destroyed == []
    whens[0].free = True
    with pytest.raises(PoolTimeoutError) as caught:
        pool.close(timeout=0.05)
    assert caught.value.pending == 1
    whens[1].after = whens[1].asked + 5
    pool.close()
    assert [when.misuse for when in whens] == [[], []]
    assert pool.stats().destroyed_for["closed"] == 2
    assert_quiet(pool, leased=0, idle=0)
    assert factory.alive == 0


@pytest.mark.parametrize("end", ["close(0)", "with"])
def test_a_close_that_does_not_wait(make_pool: MakePool, factory: Factory, end: str) -> None:
    """G9: closing without waiting destroys the pending ones that are free by then, and leaves those that aren't."""
    pool = make_pool(max_size=9)
    whens = [When() for _ in range(9)]
    things = hand_in(pool, *whens)
    for when in whens[:7]:
        when.free = True
    if end == "with":
        with pool:
            pass
    else:
        with pytest.raises(PoolTimeoutError):
            pool.close(0)
    assert set(factory.destroyed) == set(things[:7])
    assert pool.stats().pending == 2
    whens[7].free = whens[8].free = True
    pool.close(0)
    assert factory.alive == 0


@pytest.mark.parametrize("way", WAYS)
def test_given_back_after_close(make_pool: MakePool, factory: Factory, way: str) -> None:
    """G8, G9: what comes back to a closed pool and isn't free yet is destroyed once it is; reap() sees to it too."""
    pool = make_pool()
    held, when = hold(pool, way), When()
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0)
    held.release(when)
    assert factory.destroyed == []
    assert pool.stats().pending == len(held.things)
    with pytest.raises(PoolClosedError):
        pool.lease("A")
    when.free = True
    pool.reap()
    assert set(factory.destroyed) == set(held.things)
    pool.close()


def test_a_pool_dropped_with_something_pending() -> None:
    """G11: a pool that is dropped without close warns; it asks and destroys nothing."""
    factory, when, late = Factory(), When(), When()
    pools = [ResourcePool(factory.create, factory.destroy)]
    lease = pools[0].lease("A")
    hand_in(pools[0], when)
    with pytest.warns(ResourceWarning, match="2 resources"):
        pools.clear()
    gc.collect()
    lease.release(late)
    lease.release()
    del lease
    gc.collect()
    assert (when.asked, late.asked) == (1, 1)
    assert factory.calls["destroy"] == 0


# -- fork ----------------------------------------------------------------------------------------------------


def test_fork(make_pool: MakePool, factory: Factory) -> None:
    """P73, P76, G10: a child starts without the parent's pending ones and never asks for them; the parent goes on."""
    pool = make_pool(max_size=3)
    when, group_when = When(), When()
    (thing,) = hand_in(pool, when)
    group = pool.lease_many(2, "A")
    asked = when.asked

    def child() -> None:
        stats = pool.stats()
        assert (stats.pending, stats.size) == (0, 0)
        group.release(group_when)
        leases = [pool.lease("A", timeout=0) for _ in range(3)]
        assert thing not in [lease.resource for lease in leases]
        pool.reap()
        for lease in leases:
            lease.release()
        assert when.asked == asked
        mine = When()
        hand_in(pool, mine)
        mine.free = True
        pool.close()
        assert when.asked == asked
        assert len(factory.destroyed) == 3

    in_child(child)
    assert pool.stats().pending == 1
    when.free = True
    group.release()
    with pool.lease_many(3, "A", timeout=5) as got:
        assert thing in got
    assert when.misuse == []
