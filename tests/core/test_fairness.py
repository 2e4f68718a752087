"""Who is next (P12 to P16)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from respool import PoolTimeoutError
from tests.helpers.callers import Callers
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import (
    Threads,
)

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_first_come_first_served(make_pool: MakePool) -> None:
    """P12: eight callers are served in the order they queued."""
    pool = make_pool(max_size=1)
    lease = pool.lease("A")
    names = [f"caller {n}" for n in range(8)]
    with Threads() as threads:
        callers = Callers(pool, threads)
        for name in names:
            callers.join(name, "A")
        lease.release()
        for place, name in enumerate(names, 1):
            callers.wait_served(*names[:place])
            callers.let_go(name)
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.created, stats.waits) == (1, 8)


def test_first_come_first_served_over_keys(make_pool: MakePool, factory: Factory) -> None:
    """P12: at the total limit the order holds over different keys too."""
    pool = make_pool(max_size=1)
    lease = pool.lease("A")
    names = ["B", "A", "C", "A again", "B again"]
    with Threads() as threads:
        callers = Callers(pool, threads)
        for name in names:
            callers.join(name, name[0])
        lease.release()
        for place, name in enumerate(names, 1):
            callers.wait_served(*names[:place])
            callers.let_go(name)
    assert_quiet(pool, keys="ABC", leased=0, idle=1)
    assert factory.most_alive == 1


def test_a_tight_loop_does_not_starve_a_waiter(make_pool: MakePool) -> None:
    """P13: the release hands to the waiter; who released doesn't get it back before."""
    pool = make_pool(max_size=1)
    with Threads() as threads:
        callers = Callers(pool, threads)
        thing = pool.acquire("A")
        for round_ in range(50):
            name = f"waiter {round_}"
            callers.join(name, "A")
            pool.release(thing)
            assert pool.try_acquire("A") is None
            callers.wait_served(*(f"waiter {n}" for n in range(round_ + 1)))
            callers.let_go(name)
            thing = pool.acquire("A", timeout=0)
        pool.release(thing)
    assert_quiet(pool, leased=0, idle=1)


def test_a_head_held_back_by_its_own_key_is_passed(make_pool: MakePool) -> None:
    """P14: a waiter that only its own key's limit holds back lets others by, and keeps its place."""
    pool = make_pool(max_size=3, max_per_key=1)
    held_a, held_b = pool.lease("A"), pool.lease("B")
    with Threads() as threads:
        callers = Callers(pool, threads)
        callers.join("first on B", "B")
        callers.join("on A", "A")
        callers.join("second on B", "B")
        held_a.release()
        callers.wait_served("on A")
        callers.let_go("on A")
        assert pool.stats().waiters == 2
        held_b.release()
        callers.wait_served("on A", "first on B")
        callers.let_go("first on B")
        callers.wait_served("on A", "first on B", "second on B")
        callers.let_go("second on B")
    assert_quiet(pool, keys="AB", leased=0, idle=2)


def test_later_waiters_of_a_full_key_stay_behind(make_pool: MakePool) -> None:
    """P14: with room in the total, nobody of a full key gets by an earlier one of that key."""
    pool = make_pool(max_per_key=2)
    held = [pool.lease("A"), pool.lease("A")]
    names = ["one", "two", "three"]
    with Threads() as threads:
        callers = Callers(pool, threads)
        for name in names:
            callers.join(name, "A")
        assert pool.try_lease("A") is None
        held[0].discard()
        for place, name in enumerate(names, 1):
            callers.wait_served(*names[:place])
            callers.let_go(name)
        held[1].release()
    assert_quiet(pool, keys="A", leased=0, idle=2)


def test_a_head_blocked_by_the_total_gets_the_next_room(make_pool: MakePool, factory: Factory) -> None:
    """P15: the resource of A that comes back makes room for the older waiter on B."""
    pool = make_pool(max_size=2)
    held = [pool.lease("A"), pool.lease("A")]
    with Threads() as threads:
        callers = Callers(pool, threads)
        callers.join("on B", "B")
        callers.join("on A", "A")
        held[0].release()
        callers.wait_served("on B")
        assert pool.stats().waiters == 1
        assert pool.stats().destroyed_for["evicted"] == 1
        held[1].release()
        callers.wait_served("on B", "on A")
        callers.let_go("on A")
        callers.let_go("on B")
    stats = assert_quiet(pool, keys="AB", leased=0, idle=2)
    assert stats.created == 3
    assert factory.most_alive == 2


def test_a_busy_key_does_not_starve_another(make_pool: MakePool) -> None:
    """P16: with key A always asked for, a caller on B is served after those before it, every time."""
    pool = make_pool(max_size=2)
    with Threads() as threads:
        callers = Callers(pool, threads)
        callers.start("a1", "A")
        callers.wait_served("a1")
        callers.start("a2", "A")
        callers.wait_served("a1", "a2")
        order = ["a1", "a2", "a3", "b", "a4", "a5", "bb", "a6"]
        for name in order[2:]:
            callers.join(name, name[0].upper())
        for place in range(len(order)):
            callers.let_go(order[place])
            callers.wait_served(*order[: place + 3])
    assert_quiet(pool, keys="AB", leased=0)


def test_a_key_under_load_does_not_starve_another(make_pool: MakePool) -> None:
    """P16: the same with four threads that never pause."""
    pool = make_pool(max_size=2)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with pool.lease("A"):
                pass

    with Threads() as threads:
        for _ in range(4):
            threads.start(busy)
        try:
            for _ in range(50):
                with pool.lease("B") as thing:
                    assert thing.key == "B"
        finally:
            stop.set()
    assert_quiet(pool, keys="AB", leased=0)


def test_an_offer_that_proves_invalid_keeps_the_place(make_pool: MakePool, factory: Factory) -> None:
    """G4: a waiter who was offered a broken resource is still before those behind it."""
    gate = Gate()
    pool = make_pool(max_size=1, validate=factory.validate)
    lease = pool.lease("A")
    lease.resource.healthy = False
    with Threads() as threads:
        callers = Callers(pool, threads)
        callers.join("first", "A")
        callers.join("second", "A")
        factory.before["validate"] = lambda key, thing: gate.stop()
        lease.release()
        gate.wait_arrived()
        assert pool.try_lease("A") is None
        gate.open()
        callers.wait_served("first")
        callers.let_go("first")
        callers.wait_served("first", "second")
        callers.let_go("second")
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.created, stats.destroyed_for["invalid"]) == (2, 1)


def test_those_behind_a_head_that_left_are_looked_at(make_pool: MakePool, recorder: Recorder) -> None:
    """G3: when a big request in front gives up, the small ones behind it that fit are served."""
    pool = make_pool(max_cost=10, cost=int, observer=recorder)
    lease = pool.lease("6")
    with Threads() as threads:
        big = threads.start(pool.lease, "8", 0.2)
        recorder.wait_for("queued")
        small = [threads.start(pool.lease, "2") for _ in range(2)]
        assert isinstance(big.error(), PoolTimeoutError)
        for task in small:
            task.result().release()
        assert recorder.details("waited", 1).count("timeout") == 1
    lease.release()
    assert_quiet(pool, keys=["2", "6", "8"], leased=0)
