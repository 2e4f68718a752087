"""Other limits, while the pool is in use: both ways (P62, P63, P64)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    PoolClosedError,
    PoolExhaustedError,
    PoolLimits,
    ResourcePool,
)
from respool._free import FREE_THREADED
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_asleep, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def resize(pool: ResourcePool[Any, Any], **limits: Any) -> None:
    """Put these limits in force, and no others."""
    pool.resize(PoolLimits(**limits))


def assert_calm(pool: ResourcePool[Any, Any], key: Hashable, *, calm: bool = True) -> None:
    """Check that the acquires and releases of a key are on the fast way (again), or that they aren't."""
    calm = calm and not FREE_THREADED  # where there's no such way
    row = pool._core.known_lane(key)
    assert row is not None
    assert (not row.gate, not row.due) == (calm, calm)


def test_limits_tell_what_is_in_force(make_pool: MakePool) -> None:
    """P62: all limits are replaced; what isn't PoolLimits is TypeError."""
    pool = make_pool(max_size=3, max_idle=2)
    limits = PoolLimits(max_cost=5)
    pool.resize(limits)
    assert pool.limits is limits
    for wrong in (None, 3, {"max_size": 3}):
        with pytest.raises(TypeError, match="PoolLimits"):
            pool.resize(wrong)  # type: ignore[arg-type]  # that's the point
    assert pool.limits is limits


@pytest.mark.parametrize("way", ["size", "key", "cost"])
def test_shrinking_below_what_is_leased(make_pool: MakePool, factory: Factory, way: str) -> None:
    """P62: from 4 to 2 with 4 leased: two go when they come back, nobody waiting is served with them, then 2 stay."""
    limit = {"size": "max_size", "key": "max_per_key", "cost": "max_cost"}[way]
    pool = make_pool(**{limit: 4})
    held = [pool.lease("A") for _ in range(4)]
    resize(pool, **{limit: 2})
    assert pool.stats().leased == 4
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        assert pool.try_lease("A") is None
        for gone in (1, 2):
            held.pop().release()
            assert (pool.stats().size, pool.stats().idle, pool.stats().waiters) == (4 - gone, 0, 1)
            assert pool.stats().destroyed_for["surplus"] == gone
        wait_asleep([waiting.thread])
        assert not waiting.ended
        held.pop().release()
        woken(waiting).release()
        held.pop().release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.created, stats.destroyed) == (4, 2)
    assert_calm(pool, "A")
    pool.lease_many(2, "A", 0).release()


def test_shrinking_below_what_is_fast(make_pool: MakePool) -> None:
    """P62: the same on the fast tier, and for a group."""
    pool = make_pool(max_size=6)
    things = [pool.acquire("A") for _ in range(2)]
    group = pool.lease_many(4, "A")
    resize(pool, max_size=3)
    for thing in things:
        pool.release(thing)
    assert (pool.stats().size, pool.stats().idle) == (4, 0)
    group.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=3)
    assert stats.destroyed_for["surplus"] == 3
    assert_calm(pool, "A")


def test_growing_with_waiters(make_pool: MakePool) -> None:
    """P63: from 2 to 4 with three waiting: two are woken at once to create, the third waits on."""
    pool = make_pool(max_size=2)
    held = pool.lease_many(2, "A")
    with Threads() as threads:
        waiting = []
        for number in range(3):
            waiting.append(threads.start(pool.lease, "A"))
            wait_until_queued(pool, number + 1)
        resize(pool, max_size=4)
        served = [woken(task) for task in waiting[:2]]
        wait_asleep([waiting[2].thread])
        assert not waiting[2].ended
        assert sorted(lease.resource.number for lease in served) == [3, 4]
        held.release()
        woken(waiting[2]).release()
        for lease in served:
            lease.release()
    assert_quiet(pool, keys="A", leased=0, idle=4)
    assert_calm(pool, "A")


@pytest.mark.parametrize("limit", ["max_per_key", "max_cost"])
def test_growing_another_limit(make_pool: MakePool, limit: str) -> None:
    """P63: the same where the key's cap or the cost holds them back; a batch has all of its rooms or waits on."""
    pool = make_pool(**{limit: 2})
    held = pool.lease("A")
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, "A")
        wait_until_queued(pool, 1)
        resize(pool, **{limit: 2}, max_idle=1)
        wait_asleep([waiting.thread])
        resize(pool, **{limit: 3})
        woken(waiting).release()
        held.release()
    assert_quiet(pool, keys="A", leased=0, idle=3)


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_size": 2}, {"A": 0, "B": 2}),
        ({"max_per_key": 1}, {"A": 1, "B": 1}),
        ({"max_per_key": {"A": 2, "B": 1}.get}, {"A": 2, "B": 1}),
        ({"max_idle": 3}, {"A": 1, "B": 2}),
        ({"max_idle": 0}, {"A": 0, "B": 0}),
        ({"max_cost": 4}, {"A": 0, "B": 2}),
        ({"max_cost": 2, "max_per_key": 1}, {"A": 0, "B": 1}),
        ({"max_size": 4}, {"A": 2, "B": 2}),
    ],
)
def test_shrinking_below_what_is_idle(
    make_pool: MakePool, factory: Factory, limits: dict[str, Any], left: dict[str, int]
) -> None:
    """P64: the least recently used surplus is destroyed before resize returns, just as many as needed, outside locks."""
    pool = make_pool(cost={"A": 1, "B": 2}.get)
    pool.lease_many(2, "A").release()
    pool.lease_many(2, "B").release()
    locked: list[bool] = []
    factory.before["destroy"] = lambda key, thing: locked.append(pool._core.lock.locked())
    resize(pool, **limits)
    assert {key: pool.stats(key).idle for key in "AB"} == left
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert stats.destroyed_for["surplus"] == stats.destroyed == 4 - sum(left.values())
    assert locked == [False] * stats.destroyed


def test_shrunk_with_background_destroy(make_pool: MakePool, factory: Factory) -> None:
    """P64: with background destroy the surplus goes to that thread, and resize doesn't wait for it."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(destroy_in="background")
    pool.lease_many(3, "A").release()
    resize(pool, max_size=1)
    gate.wait_arrived()
    assert (pool.stats().idle, pool.stats().destroying) == (1, 2)
    gate.open()
    wait_until(lambda: pool.stats().size == 1)
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_shrunk_and_grown_again(make_pool: MakePool, factory: Factory) -> None:
    """P62, P63: grown again before what's too many has come back, nothing is destroyed, and the fast way is open."""
    pool = make_pool(max_size=4, max_per_key=4)
    held = [pool.lease("A") for _ in range(4)]
    resize(pool, max_size=1, max_per_key=1)
    assert_calm(pool, "A", calm=False)
    resize(pool, max_size=4)
    assert_calm(pool, "A")
    for lease in held:
        lease.release()
    assert_quiet(pool, keys="A", leased=0, idle=4)
    assert factory.destroyed == []


def test_waiters_that_become_impossible(make_pool: MakePool, recorder: Recorder) -> None:
    """P62, P101: who waits for what could never be had any more gets PoolExhaustedError, counted as rejected."""
    pool = make_pool(max_cost=10, cost=int, observer=recorder)
    held = [pool.lease("1") for _ in range(7)]
    with Threads() as threads:
        big = threads.start(pool.lease, "6")
        wait_until_queued(pool, 1)
        batch = threads.start(pool.lease_many, 4, "2", 100)
        wait_until_queued(pool, 2)
        small = threads.start(pool.lease, "2")
        wait_until_queued(pool, 3)
        resize(pool, max_cost=5)
        for task in (big, batch):
            with pytest.raises(PoolExhaustedError, match="max_cost=5"):
                woken(task)
        wait_asleep([small.thread])
        for lease in held:
            lease.release()
        woken(small).release()
    assert sorted(recorder.details("waited", 1)) == ["failed", "failed", "served"]
    stats = assert_quiet(pool, keys=["1", "2", "6"], leased=0)
    assert (stats.rejected, stats.timeouts, stats.cancelled, stats.waits) == (2, 0, 0, 3)
    assert stats.cost <= 5
    with pytest.raises(PoolExhaustedError):
        pool.lease("6", 0)


@pytest.mark.parametrize("waiters", [0, 1])
def test_fewer_may_wait(make_pool: MakePool, waiters: int) -> None:
    """P06, P62: who waits already waits on; one more is refused, until there are few enough."""
    pool = make_pool(max_size=1)
    held = pool.lease("A")
    with Threads() as threads:
        waiting = []
        for number in range(2):
            waiting.append(threads.start(lambda: pool.lease("A").release()))
            wait_until_queued(pool, number + 1)
        resize(pool, max_size=1, max_waiters=waiters)
        with pytest.raises(PoolExhaustedError, match="max_waiters"):
            pool.lease("A", 5)
        held.release()
        for task in waiting:
            woken(task)
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_closed(make_pool: MakePool) -> None:
    """P62: a closed pool can't be resized; its limits stay."""
    pool = make_pool(max_size=1)
    pool.close()
    with pytest.raises(PoolClosedError):
        resize(pool, max_size=2)
    assert pool.limits == PoolLimits(max_size=1)


def test_in_a_child(make_pool: MakePool) -> None:
    """P74: a child resizes its own pool; its parent's is as before."""
    pool = make_pool(max_size=2)
    held = pool.lease_many(2, "A")

    def child() -> None:
        resize(pool, max_size=3)
        pool.lease_many(3, "A", 0).release()
        held.release()
        assert_quiet(pool, keys="A", leased=0, idle=3)

    in_child(child)
    assert pool.limits.max_size == 2
    held.release()
    assert_quiet(pool, keys="A", leased=0, idle=2)


def test_evicting_after_a_limit_was_set(make_pool: MakePool, factory: Factory) -> None:
    """P03, P62: the order of use is right from before there was a limit that needed it."""
    pool = make_pool()
    for key in "ABCA":
        pool.lease(key).release()
    resize(pool, max_size=3)
    pool.lease("D", 0).release()
    pool.lease("E", 0).release()
    assert [thing.key for thing in factory.destroyed] == ["B", "C"]
    assert_quiet(pool, keys="ADE", leased=0, idle=3)


def test_everything_off_again(make_pool: MakePool) -> None:
    """P62: after limits of all kinds have come and gone, the pool is on its fast way, with no look at clocks or counts."""
    pool = make_pool()
    pool.lease_many(2, "A").release()
    assert_calm(pool, "A")
    for name, value in {
        "max_size": 2,
        "max_per_key": 2,
        "max_cost": 2,
        "max_idle": 2,
        "max_waiters": 2,
        "idle_timeout": 1000.0,
        "max_lifetime": 1000.0,
    }.items():
        pool.resize(dataclasses.replace(PoolLimits(), **{name: value}))
        slow = name in {"max_idle", "idle_timeout", "max_lifetime"}
        assert_calm(pool, "A", calm=not slow)
        pool.lease_many(2, "A").release()
        resize(pool)
        assert_calm(pool, "A")
        pool.lease_many(2, "A").release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.created, stats.destroyed) == (2, 0)
