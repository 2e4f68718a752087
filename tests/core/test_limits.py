"""Limits from outside: never passed, and what a caller gets who meets one (P01 to P07, P11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool import PoolExhaustedError, PoolLimits, PoolTimeoutError
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Hashable

    from respool import ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_resources_in_creation_count(make_pool: MakePool, factory: Factory) -> None:
    """P01: with 16 callers and room for two, no third resource is even begun."""
    gate = Gate()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool(max_size=2)

    def use() -> int:
        with pool.lease("k") as thing:
            return thing.number

    with Threads() as threads:
        tasks = [threads.start(use) for _ in range(16)]
        gate.wait_arrived(2)
        wait_until_queued(pool, 14)
        stats = pool.stats()
        assert (stats.size, stats.creating, stats.idle, stats.leased) == (2, 2, 0, 0)
        assert_within(stats, pool.limits)
        gate.open()
    assert {task.result() for task in tasks} == {1, 2}
    assert factory.most_alive == 2
    stats = assert_quiet(pool, keys=["k"], leased=0, idle=2)
    assert (stats.created, stats.acquired, stats.reused) == (2, 16, 14)


def test_a_full_key_stops_only_itself(make_pool: MakePool) -> None:
    """P02: a key at its own limit waits, another key is served at once."""
    pool = make_pool(max_size=4, max_per_key=2)
    first, second = pool.lease("A"), pool.lease("A")
    with pytest.raises(PoolTimeoutError):
        pool.lease("A", timeout=0)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        with pool.lease("B") as other:
            assert other.key == "B"
            assert pool.stats("A").leased == 2
        assert not waiting.ended
        first.release()
        third = waiting.result()
    assert pool.stats("A").leased == 2
    third.release()
    second.release()
    stats = assert_quiet(pool, keys=["A", "B"], leased=0, idle=3)
    assert stats.created == 3


def test_max_per_key_may_be_a_function(make_pool: MakePool) -> None:
    """P02: a function of the key gives each key its own limit; None is no limit."""
    caps: dict[str, int | None] = {"one": 1, "two": 2, "many": None}
    pool = make_pool(max_per_key=caps.__getitem__)
    leases = [pool.lease(key) for key in ("one", "two", "two", "many", "many", "many")]
    assert pool.try_lease("one") is None
    assert pool.try_lease("two") is None
    leases += [pool.lease("many")]
    assert {key: pool.stats(key).leased for key in caps} == {"one": 1, "two": 2, "many": 4}
    for lease in leases:
        lease.release()
    assert_quiet(pool, keys=caps, leased=0, idle=7)


def test_another_keys_idle_makes_room(make_pool: MakePool, factory: Factory) -> None:
    """P03: at the total limit the least recently used idle resource of another key gives way."""
    pool = make_pool(max_size=2)
    for key in ("old", "young", "old"):
        pool.lease(key).release()
    with pool.lease("new") as thing:
        assert thing.key == "new"
        assert [gone.key for gone in factory.destroyed] == ["young"]
    stats = assert_quiet(pool, keys=["old", "young", "new"], idle=2)
    assert stats.destroyed_for["evicted"] == stats.destroyed == 1
    assert stats.waits == 0
    assert factory.most_alive == 2


def test_the_least_recently_used_of_one_key_goes(make_pool: MakePool, factory: Factory) -> None:
    """P03: of several idle ones of one key, the one unused for longest goes, and only that."""
    pool = make_pool(max_size=3)
    leases = [pool.lease("A") for _ in range(3)]
    for lease in (leases[1], leases[2], leases[0]):
        lease.release()
    lease = pool.try_lease("B")
    assert lease is not None
    assert factory.numbers_destroyed() == [2]
    lease.release()
    lease = pool.lease("C", timeout=0)
    assert factory.numbers_destroyed() == [2, 3]
    lease.release()
    assert_quiet(pool, keys=["A", "B", "C"], idle=3)


def test_room_is_free_only_when_destroy_has_returned(make_pool: MakePool, factory: Factory) -> None:
    """P03: while the evicted one is being destroyed it still counts, and create isn't begun."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=1)
    pool.lease("A").release()
    with Threads() as threads:
        task = threads.start(pool.lease, "B")
        gate.wait_arrived()
        stats = pool.stats()
        assert (stats.size, stats.destroying, stats.creating) == (1, 1, 0)
        assert factory.calls["create"] == 1
        assert pool.try_lease("C") is None
        gate.open()
        task.result().release()
    assert factory.most_alive == 1
    assert_quiet(pool, keys=["A", "B"], idle=1)


def test_max_idle_keeps_so_many(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P04: of two released with max_idle=1, one is kept for the next caller, one destroyed once."""
    pool = make_pool(max_idle=1, observer=recorder)
    first, second = pool.lease(), pool.lease()
    first.release()
    second.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.destroyed == stats.destroyed_for["surplus"] == 1
    assert recorder.details("destroyed") == ["surplus"]
    pool.lease().release()
    assert factory.calls["create"] == 2
    assert factory.calls["destroy"] == 1


def test_max_idle_counts_over_all_keys(make_pool: MakePool) -> None:
    """P04: max_idle is a limit over all keys together."""
    pool = make_pool(max_idle=2)
    leases = [pool.lease(key) for key in "ABC"]
    for lease in leases:
        lease.release()
    assert_quiet(pool, keys="ABC", leased=0, idle=2)


def test_max_idle_zero_keeps_none(make_pool: MakePool, factory: Factory) -> None:
    """P04: with max_idle=0 each resource is used once, and a waiter gets the room."""
    pool = make_pool(max_size=1, max_idle=0)
    for _ in range(3):
        pool.lease().release()
        assert_quiet(pool, leased=0, idle=0)
    assert factory.numbers_destroyed() == [1, 2, 3]
    lease = pool.lease()
    with Threads() as threads:
        waiting = threads.start(pool.lease)
        wait_until_queued(pool, 1)
        lease.release()
        waiting.result().release()
    assert_quiet(pool, leased=0, idle=0)


def test_without_max_idle_all_are_kept(make_pool: MakePool, factory: Factory) -> None:
    """P05: as many may be idle as may exist: load that comes and goes destroys nothing."""
    pool = make_pool(max_size=100)
    for _ in range(3):
        leases = [pool.lease() for _ in range(100)]
        for lease in leases:
            lease.release()
        assert_quiet(pool, leased=0, idle=100)
    assert factory.calls == {"create": 100}


def test_max_waiters_refuses_one_more(make_pool: MakePool) -> None:
    """P06: the fourth caller that would queue is refused at once, and counted."""
    pool = make_pool(max_size=1, max_waiters=3)
    lease = pool.lease()

    def use() -> None:
        with pool.lease():
            pass

    with Threads() as threads:
        for _ in range(3):
            threads.start(use)
        wait_until_queued(pool, 3)
        for timeout in (None, 60.0):
            with pytest.raises(PoolExhaustedError, match="3"):
                pool.lease(timeout=timeout)
        with pytest.raises(PoolExhaustedError):
            pool.acquire()
        stats = pool.stats()
        assert (stats.waiters, stats.rejected, stats.waits) == (3, 3, 3)
        assert pool.try_lease() is None
        with pytest.raises(PoolTimeoutError):
            pool.lease(timeout=0)
        lease.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.rejected, stats.timeouts, stats.waits) == (3, 1, 3)


def test_max_waiters_zero_queues_nobody(make_pool: MakePool) -> None:
    """P06: with max_waiters=0 callers are served at once, or refused."""
    pool = make_pool(max_size=2, max_waiters=0)
    first = pool.lease()
    second = pool.lease()
    with pytest.raises(PoolExhaustedError):
        pool.lease()
    second.release()
    pool.lease().release()
    first.release()
    pool.lease("other").release()
    first = pool.lease("other")
    second = pool.lease("another")  # takes the room of an idle one: nobody has to wait
    first.release()
    second.release()
    stats = assert_quiet(pool, leased=0, idle=2)
    assert (stats.rejected, stats.waits) == (1, 0)


def test_try_never_waits(make_pool: MakePool) -> None:
    """P07: try_acquire and try_lease on a full pool give None and count nowhere; with room they create."""
    pool = make_pool(max_size=1)
    lease = pool.try_lease()
    assert lease is not None
    assert pool.try_acquire() is None
    assert pool.try_lease() is None
    stats = pool.stats()
    assert (stats.timeouts, stats.rejected, stats.waits, stats.acquired) == (0, 0, 0, 1)
    lease.release()
    thing = pool.try_acquire()
    assert thing is not None
    pool.release(thing)
    assert_quiet(pool, leased=0, idle=1)


def test_try_does_not_pass_waiters_for_room(make_pool: MakePool) -> None:
    """P07: with room left but somebody waiting for more of it, a try_ call gives None."""
    pool = make_pool(max_cost=10, cost=lambda key: key)
    lease = pool.lease(6)
    with Threads() as threads:
        big = threads.start(pool.lease, 7)
        wait_until_queued(pool, 1)
        assert pool.try_acquire(2) is None
        assert pool.try_lease(2) is None
        with pytest.raises(PoolTimeoutError):
            pool.lease(2, timeout=0)
        lease.discard()
        big.result().release()
    lease = pool.lease(2)
    lease.release()
    assert_quiet(pool, keys=[2, 6, 7], leased=0)


def test_try_does_not_pass_waiters_for_idle(make_pool: MakePool) -> None:
    """P07: nor does it take an idle resource past a waiter that is blocked by the total."""
    pool = make_pool(max_cost=10, cost=lambda key: key)
    pool.lease(2).release()
    lease = pool.lease(6)
    with Threads() as threads:
        big = threads.start(pool.lease, 9)
        wait_until_queued(pool, 1)
        assert pool.stats(2).idle == 1
        assert pool.try_acquire(2) is None
        assert pool.try_lease(2) is None
        lease.release()
        big.result().release()
    stats = assert_quiet(pool, keys=[2, 6, 9], leased=0, idle=1)
    assert stats.destroyed_for["evicted"] == 2


def test_try_passes_a_waiter_that_its_own_key_holds_back(make_pool: MakePool) -> None:
    """P07: a waiter whose own key is full stands in nobody else's way."""
    pool = make_pool(max_size=3, max_per_key=1)
    lease = pool.lease("A")
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        other = pool.try_lease("B")
        assert other is not None
        other.release()
        assert pool.try_lease("A") is None
        lease.release()
        waiting.result().release()
    assert_quiet(pool, keys="AB", leased=0, idle=2)


def test_limits_that_only_look_contradictory(make_pool: MakePool) -> None:
    """P11: a limit that another one makes ineffective is fine."""
    pool = make_pool(max_size=1, max_per_key=5, max_idle=9, max_waiters=0)
    pool.lease().release()
    assert pool.limits == PoolLimits(max_size=1, max_per_key=5, max_idle=9, max_waiters=0)


@pytest.mark.parametrize("call", ["lease", "acquire", "try_lease", "try_acquire"])
def test_what_no_limit_ever_allows_is_refused(make_pool: MakePool, call: str) -> None:
    """P92: a request above the whole budget is refused at once, by try_ calls too, and counted."""
    pool = make_pool(max_cost=10, cost=lambda key: key)

    def ask(pool: ResourcePool[int, Thing], key: Hashable) -> object:
        return getattr(pool, call)(key)

    with pytest.raises(PoolExhaustedError, match="11"):
        ask(pool, 11)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.rejected, stats.waits, stats.created) == (1, 0, 0)
    pool.lease(10).release()
