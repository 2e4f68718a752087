"""clear(): idle ones go now, leased ones when they come back, later ones stay (P65, P66, P56)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool import ALL, InvalidReleaseError
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_clear_of_all_keys(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P65: clear() destroys every idle resource before it returns, and says how many."""
    pool = make_pool(max_size=5, observer=recorder)
    assert pool.clear() == 0
    leases = [pool.lease(key) for key in ("A", "A", "B", None)]
    for lease in leases:
        lease.release()
    assert pool.clear() == 4
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3, 4]
    assert recorder.details("destroyed") == ["cleared"] * 4
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.destroyed_for["cleared"]) == (0, 4)
    assert pool.clear(ALL) == 0
    pool.lease("A").release()
    assert_quiet(pool, keys=["A"], leased=0, idle=1)


def test_clear_of_one_key(make_pool: MakePool, factory: Factory) -> None:
    """P65: clear(key) leaves other keys alone; None is a key like any other, and not all keys."""
    pool = make_pool()
    for key in ("A", "B", None):
        pool.lease(key).release()
    assert pool.clear("A") == 1
    assert pool.clear(None) == 1
    assert pool.clear("never used") == 0
    assert factory.numbers_destroyed() == [1, 3]
    assert_quiet(pool, keys=["B"], leased=0, idle=1)
    assert pool.bind("B").clear() == 1
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("tier", ["lease", "fast"])
def test_a_leased_one_goes_on_release(make_pool: MakePool, factory: Factory, tier: str) -> None:
    """P65: what is leased while clear() runs is destroyed when it comes back; later ones are pooled."""
    pool = make_pool(max_size=3)
    pool.lease("A").release()
    if tier == "lease":
        lease = pool.lease("A")
        old, give_back = lease.resource, lease.release
    else:
        old = pool.acquire("A")

        def give_back() -> None:
            pool.release(old)

    young = pool.lease("A")
    young.release()
    assert pool.clear("A") == 1
    assert old.alive
    assert pool.stats().leased == 1
    later = pool.lease("A")
    give_back()
    assert not old.alive
    assert factory.destroyed == [young_thing(factory), old]
    later.release()
    stats = assert_quiet(pool, keys=["A"], leased=0, idle=1)
    assert stats.destroyed_for["cleared"] == 2
    with pool.lease("A") as thing:
        assert thing.number == 3


def young_thing(factory: Factory) -> Thing:
    """Return the second thing made."""
    return factory.made[1]


def test_other_keys_leases_survive_a_clear_of_one(make_pool: MakePool, factory: Factory) -> None:
    """P65: clear(key) marks that key's leases only."""
    pool = make_pool()
    first, second = pool.lease("A"), pool.lease("B")
    pool.clear("A")
    first.release()
    second.release()
    assert factory.numbers_destroyed() == [1]
    assert_quiet(pool, keys=["A", "B"], leased=0, idle=1)


def test_a_cleared_lease_that_is_discarded_or_detached(make_pool: MakePool, factory: Factory) -> None:
    """P65: a lease of before the clear may end in any way, and is destroyed at most once."""
    pool = make_pool(max_size=2)
    first, second = pool.lease(), pool.lease()
    pool.clear()
    first.discard()
    thing = second.detach()
    assert factory.numbers_destroyed() == [1]
    assert thing.alive
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.detached, stats.destroyed) == (1, 1)


def test_the_room_of_a_cleared_lease_serves_a_waiter(make_pool: MakePool) -> None:
    """P65: a waiter never gets the old one; it gets the room, for a new one."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with Threads() as threads:
        waiting = threads.start(pool.lease)
        wait_until_queued(pool, 1)
        assert pool.clear() == 0
        lease.release()
        new = woken(waiting)
        assert new.resource.number == 2
        new.release()
    assert_quiet(pool, leased=0, idle=1)


def test_clear_frees_room_for_a_waiter_on_another_key(make_pool: MakePool, factory: Factory) -> None:
    """P66: at the total cap, rooms freed by clear(A) serve B at once; counters fall with the destroyed."""
    gate = Gate()
    pool = make_pool(max_size=2, cost=lambda key: 7)
    for lease in [pool.lease("A"), pool.lease("A")]:
        lease.release()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    with Threads() as threads:
        clearing = threads.start(pool.clear, "A")
        gate.wait_arrived(1)
        stats = pool.stats()
        assert (stats.size, stats.cost) == (2, 14)
        assert stats.idle + stats.destroying == 2
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        gate.open()
        assert clearing.result() == 2
        assert woken(waiting).resource.key == "B"
        assert (pool.stats("A").size, pool.stats("A").cost) == (0, 0)
        waiting.result().release()
    stats = assert_quiet(pool, keys=["A", "B"], leased=0, idle=1)
    assert (stats.cost, stats.destroyed_for["cleared"]) == (7, 2)


def test_clear_lets_on_a_waiter_of_its_own_key(make_pool: MakePool, factory: Factory) -> None:
    """P66: a waiter blocked by its own key's limit is looked at when clear() frees that key's room."""
    gate = Gate()
    pool = make_pool(max_size=4, max_per_key=1, validate=factory.validate)
    pool.lease("A").release()
    factory.before["validate"] = lambda key, thing: gate.stop()
    with Threads() as threads:
        first = threads.start(pool.lease, "A")  # has the idle one in hand, in validate
        gate.wait_arrived(1)
        second = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        pool.clear("A")
        gate.open()
        first.result().release()
        second.result().release()
    assert_quiet(pool, keys=["A"], leased=0)


def test_one_in_validation_is_not_destroyed_under_its_taker(make_pool: MakePool, factory: Factory) -> None:
    """P56: clear() meets an acquire that is validating the resource: one of them has it, never both."""
    gate = Gate()
    pool = make_pool(max_size=2, validate=factory.validate)
    pool.lease().release()
    factory.before["validate"] = lambda key, thing: gate.stop()
    with Threads() as threads:
        taking = threads.start(pool.lease)
        gate.wait_arrived(1)
        assert pool.clear() == 0
        assert factory.destroyed == []
        gate.open()
        lease = taking.result()
        assert lease.resource.alive
        lease.release()
    assert_quiet(pool, leased=0)
    assert factory.made[0] in factory.destroyed  # of before the clear: not kept in any case


def test_one_being_destroyed_is_not_handed_out(make_pool: MakePool, factory: Factory) -> None:
    """P56: while clear() destroys a resource nobody gets it: with room another is made, else one waits."""
    gate = Gate()
    pool = make_pool(max_size=2)
    pool.lease().release()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    with Threads() as threads:
        clearing = threads.start(pool.clear)
        gate.wait_arrived(1)
        with pytest.raises(InvalidReleaseError):
            pool.release(factory.made[0])
        lease = pool.lease()
        assert lease.resource.number == 2
        assert pool.try_lease() is None  # the one being destroyed still has its room
        waiting = threads.start(pool.lease)
        wait_until_queued(pool, 1)
        gate.open()
        assert clearing.result() == 1
        assert waiting.result().resource.number == 3
        waiting.result().discard()
        lease.discard()
    assert_quiet(pool, leased=0, idle=0)


def test_clear_against_acquire_in_many_runs(make_pool: MakePool, factory: Factory) -> None:
    """P56: however clear() and acquire meet on one idle resource, what is handed out is alive."""
    pool = make_pool(max_size=2)

    def take() -> bool:
        with pool.lease() as thing:
            return thing.alive

    for _ in range(200):
        pool.lease().release()
        alive, cleared = run_together(take, pool.clear)
        assert alive
        assert cleared in {0, 1}
        stats = assert_quiet(pool, leased=0)
        assert stats.idle <= 1
    assert len(set(factory.destroyed)) == len(factory.destroyed)


def test_two_clears_at_once_count_each_resource_once(make_pool: MakePool, factory: Factory) -> None:
    """P56: what two clear() calls return adds up to what was idle."""
    pool = make_pool(max_size=4)
    for _ in range(50):
        leases = [pool.lease(key) for key in "AABB"]
        for lease in leases:
            lease.release()
        assert sum(run_together(pool.clear, pool.clear, lambda: pool.clear("A"))) == 4
        assert_quiet(pool, leased=0, idle=0)
    assert len(factory.destroyed) == 200


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_failing_destroy_in_clear_loses_no_room(
    make_pool: MakePool, factory: Factory, kind: type[BaseException]
) -> None:
    """P27, G3: destroy fails for one of several: all of them are gone, and the rooms are free."""
    pool = make_pool(max_size=3)
    for lease in [pool.lease() for _ in range(3)]:
        lease.release()
    factory.errors["destroy"] = [None, kind("destroy")]
    try:
        assert pool.clear() == 3
    except KeyboardInterrupt:
        assert kind is KeyboardInterrupt
        pool.clear()
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.hook_errors["destroy"]) == (0, 1)
    for lease in [pool.lease() for _ in range(3)]:
        lease.release()
    assert_quiet(pool, leased=0, idle=3)


def test_clear_of_many_keys(make_pool: MakePool) -> None:
    """P65: clear() reaches keys whose state is used by nothing but an idle resource."""
    pool = make_pool()
    for key in range(500):
        pool.lease(key).release()
    assert pool.clear() == 500
    assert_quiet(pool, leased=0, idle=0)


def test_clear_refuses_what_cannot_be_a_key(make_pool: MakePool) -> None:
    """P65: an unhashable key is a TypeError, and nothing is cleared."""
    pool = make_pool()
    pool.lease("A").release()
    with pytest.raises(TypeError):
        pool.clear([])  # type: ignore[arg-type]
    assert_quiet(pool, leased=0, idle=1)
