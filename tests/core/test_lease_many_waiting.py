"""A batch in line: its place, what it collects, and how its wait ends (P99, P100, G4)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    PoolTimeoutError,
)
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import HANG_GUARD, Threads, wait_asleep, wait_until, wait_until_queued

if TYPE_CHECKING:
    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing
    from tests.helpers.threads import Task

pytestmark = pytest.mark.usefixtures("no_backstop")


class Line:
    """Callers, who join one after another and hold what they get until they are told to let go."""

    def __init__(self, pool: ResourcePool[Any, Thing], threads: Threads) -> None:
        self.pool = pool
        self.threads = threads
        self.served: list[str] = []
        self._may_go: dict[str, threading.Event] = {}
        self._tasks: dict[str, Task[None]] = {}

    def join(self, name: str) -> None:
        """Queue a caller named by key and number, "A3" for three of A; return when it is in line."""
        waiters = self.pool.stats().waiters
        self._may_go[name] = threading.Event()

        def use() -> None:
            with self.pool.lease_many(int(name[1]), name[0]) as things:
                assert len({id(thing) for thing in things}) == int(name[1])
                assert all(thing.key == name[0] and thing.alive for thing in things)
                self.served.append(name)
                assert self._may_go[name].wait(HANG_GUARD)

        self._tasks[name] = self.threads.start(use)
        wait_until_queued(self.pool, waiters + 1)

    def wait_served(self, *names: str) -> None:
        """Wait until exactly these have been served, in this order."""
        wait_until(lambda: len(self.served) >= len(names), f"{names} served, not {self.served}")
        assert self.served == list(names)

    def let_go(self, *names: str) -> None:
        """Let served callers release, and wait until they have."""
        for name in names:
            self._may_go[name].set()
            self._tasks[name].wait()

    def still(self, *names: str) -> None:
        """Check that only these have been served when all the others are asleep."""
        wait_asleep([task.thread for name, task in self._tasks.items() if name not in self.served])
        assert self.served == list(names)


def test_first_come_first_served(make_pool: MakePool) -> None:
    """P12, P99, G4: batches and single ones of one key are served in the order they came."""
    pool = make_pool(max_size=3)
    held = pool.lease_many(3, "A")
    names = ["A2 first", "A2 second", "A3 third", "A1 fourth", "A3 fifth"]
    with Threads() as threads:
        line = Line(pool, threads)
        for name in names:
            line.join(name)
        held.release()
        for place, name in enumerate(names, 1):
            line.wait_served(*names[:place])
            line.still(*names[:place])
            line.let_go(name)
    stats = assert_quiet(pool, keys="A", leased=0, idle=3)
    assert (stats.created, stats.waits, stats.acquired, stats.reused) == (3, 5, 14, 11)


def test_a_newcomer_does_not_pass(make_pool: MakePool) -> None:
    """P07, P13, G4: while a batch collects, neither a try_ call nor a release-acquire loop gets what came back."""
    pool = make_pool(max_size=3)
    held = [pool.lease("A") for _ in range(3)]
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("A3")
        for n in range(2):
            held.pop().release()
            assert pool.stats("A").idle == n + 1
            assert pool.try_lease("A") is None
            assert pool.try_acquire("A") is None
            with pytest.raises(PoolTimeoutError):
                pool.lease_many(1, "A", 0)
            with pytest.raises(PoolTimeoutError):
                pool.lease("A", 0.001)
        held.pop().release()
        line.wait_served("A3")
        line.let_go("A3")
    assert assert_quiet(pool, keys="A", leased=0, idle=3).created == 3


def test_blocked_by_the_total_it_blocks_those_behind(make_pool: MakePool) -> None:
    """P99, G4: a batch that waits for the total is passed by nobody, of whatever key."""
    pool = make_pool(max_size=4)
    held = [pool.lease("C") for _ in range(4)]
    with Threads() as threads:
        line = Line(pool, threads)
        for name in ("A3", "B1", "C1"):
            line.join(name)
        held.pop().release()
        held.pop().release()
        line.still()
        assert pool.try_lease("B") is None
        assert pool.stats().destroyed == 0
        held.pop().release()
        line.wait_served("A3")
        assert pool.stats().destroyed_for["evicted"] == 3
        held.pop().release()
        line.wait_served("A3", "B1")
        line.let_go("B1")
        line.wait_served("A3", "B1", "C1")
        line.let_go("A3", "C1")
    assert_quiet(pool, keys="ABC", leased=0, idle=4)


def test_blocked_by_its_own_key_it_is_passed(make_pool: MakePool) -> None:
    """P14, G4: a batch that only its key's cap holds back lets other keys by, and later ones of its key stay behind."""
    pool = make_pool(max_size=6, max_per_key=3)
    held = pool.lease("A"), pool.lease("A")
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("A2")
        line.join("A1")
        with pool.lease("B", 0), pool.lease_many(2, "B", 0):
            assert pool.stats("B").leased == 3
        line.still()
        assert pool.stats("A").size == 2  # the room that A has left isn't enough for the first
        held[0].release()
        line.wait_served("A2")
        line.still("A2")
        held[1].release()
        line.wait_served("A2", "A1")
        line.let_go("A2", "A1")
    assert_quiet(pool, keys="AB", leased=0, idle=6)


def test_what_it_collects_is_not_evicted_for_younger_ones(make_pool: MakePool, factory: Factory) -> None:
    """P99, G4: idle ones that a batch waits to complete are left alone by younger callers of other keys."""
    pool = make_pool(max_size=3, max_per_key={"A": 2, "B": 2, "C": 1}.__getitem__)
    held, other = pool.lease_many(2, "A"), pool.lease("B")
    rest = held.resources
    with Threads() as threads:
        line = Line(pool, threads)
        held.release()
        single = pool.lease("A")
        line.join("A2")
        assert (pool.stats("A").idle, pool.stats("A").leased) == (1, 1)
        line.join("B1")
        assert pool.try_lease("C") is None
        line.still()
        assert factory.destroyed == []
        single.release()
        line.wait_served("A2")
        assert all(thing.alive for thing in rest)
        line.let_go("A2")  # now the younger one may have the room of one that is idle
        line.wait_served("A2", "B1")
        line.let_go("B1")
    assert [thing.key for thing in factory.destroyed] == ["A"]
    other.release()
    assert_quiet(pool, keys="ABC", leased=0, idle=3)


def test_what_it_collects_is_evicted_for_older_ones(make_pool: MakePool, factory: Factory) -> None:
    """P99, G4: an older caller of another key has the room of what a younger batch collects."""
    pool = make_pool(max_size=3)
    leases = [pool.lease("A") for _ in range(3)]
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("B1")
        line.join("A2")
        leases.pop().release()
        line.wait_served("B1")
        assert [thing.key for thing in factory.destroyed] == ["A"]
        leases.pop().release()
        line.still("B1")
        assert pool.stats("A").idle == 1
        line.let_go("B1")  # the batch may have B's room, or else wait for the one that is leased
        line.wait_served("B1", "A2")
        leases.pop().release()
        line.let_go("A2")
    assert_quiet(pool, keys="AB", leased=0)
    assert factory.most_alive == 3


def test_it_takes_its_own_idle_ones_before_it_evicts(make_pool: MakePool, factory: Factory) -> None:
    """P03, P99: a batch has its key's idle ones, and evicts others only for the rest, all of it at once."""
    pool = make_pool(max_size=5)
    held = pool.lease("B")
    pool.lease_many(2, "B").release()
    pool.lease_many(2, "A").release()
    pool.lease_many(3, "A", 0).release()
    assert [thing.key for thing in factory.destroyed] == ["B"]
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("A5")
        line.still()
        assert len(factory.destroyed) == 1  # destroying the other B wouldn't have been enough
        held.release()
        line.wait_served("A5")
        line.let_go("A5")
    stats = assert_quiet(pool, keys="AB", leased=0, idle=5)
    assert (stats.created, stats.destroyed_for["evicted"]) == (8, 3)


def test_a_costly_batch_has_its_turn(make_pool: MakePool, factory: Factory) -> None:
    """P93, P99: the cost of the whole batch has to fit at once, and smaller requests stay behind it."""
    pool = make_pool(max_cost=10, cost={"A": 3, "B": 2}.__getitem__)
    held = [pool.lease("B") for _ in range(4)]
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("A3")
        line.join("B1")
        for _ in range(3):
            held.pop().release()
        line.still()
        assert (pool.stats().cost, pool.stats().destroyed) == (8, 0)
        held.pop().release()
        line.wait_served("A3")
        line.let_go("A3")
        line.wait_served("A3", "B1")
        line.let_go("B1")
    assert_quiet(pool, keys="AB", leased=0)


@pytest.mark.parametrize("key", ["A", "B"])
def test_it_never_starves(make_pool: MakePool, key: str) -> None:
    """P16, P100, G4: under a steady load of single ones, of its own key or another, each batch has its turn."""
    pool = make_pool(max_size=4)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with pool.lease(key):
                pass

    with Threads() as threads:
        for _ in range(4):
            threads.start(busy)
        try:
            for _ in range(40):
                with pool.lease_many(4, "A") as things:
                    assert len({id(thing) for thing in things}) == 4
        finally:
            stop.set()
    assert_quiet(pool, keys="AB", leased=0)


def test_an_offer_that_proves_invalid_keeps_the_place(make_pool: MakePool, factory: Factory) -> None:
    """P99, G4: when one of the resources proves invalid, the batch is still before those behind it."""
    pool = make_pool(max_size=2, validate=factory.validate)
    held = [pool.lease("A"), pool.lease("A")]
    held[0].resource.healthy = False
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("A2")
        line.join("A1")
        for lease in held:
            lease.release()
        line.wait_served("A2")
        line.let_go("A2")
        line.wait_served("A2", "A1")
        line.let_go("A1")
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.created, stats.destroyed_for["invalid"], stats.waits) == (3, 1, 2)


def test_nothing_is_held_while_it_waits_again(make_pool: MakePool, factory: Factory) -> None:
    """P99, P100: when one proves invalid the batch holds nothing, neither what was good nor the rooms to create in."""
    gate = Gate()
    pool = make_pool(max_size=3, validate=factory.validate)
    held = pool.lease_many(2, "A")
    other = pool.lease("B")
    held.resources[0].healthy = False
    factory.before["destroy"] = lambda key, thing: gate.stop() if key == "A" else None
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 3, "A")
        wait_until_queued(pool, 1)
        held.release()
        other.discard()  # it's served with two that are idle and a room, and finds that one is no good
        gate.wait_arrived()
        stats = pool.stats()
        assert (stats.idle, stats.leased, stats.creating, stats.destroying) == (1, 0, 0, 1)
        assert pool.try_lease("A") is None
        gate.open()
        with woken(waiting) as things:
            assert sorted(thing.number for thing in things) == [2, 4, 5]
    assert_quiet(pool, keys="A", leased=0, idle=3)
    assert factory.most_alive == 3


def test_invalid_with_others_waiting_for_the_room(make_pool: MakePool, factory: Factory) -> None:
    """P99, P100, G4: its invalid one's room isn't given to a younger caller of another key."""
    pool = make_pool(max_size=2, validate=factory.validate)
    held = [pool.lease("A"), pool.lease("A")]
    held[1].resource.healthy = False
    with Threads() as threads:
        line = Line(pool, threads)
        line.join("A2")
        line.join("B1")
        for lease in held:
            lease.release()
        line.wait_served("A2")
        line.still("A2")
        line.let_go("A2")
        line.wait_served("A2", "B1")
        line.let_go("B1")
    assert_quiet(pool, keys="AB", leased=0, idle=2)
